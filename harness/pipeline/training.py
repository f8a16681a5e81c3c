"""The whole run: target threads that make items, drafter threads that train on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from harness.core.errors import UserError
from harness.core.workload import Context, PipelineSettings, Scenario, Worker, parse_settings
from harness.pipeline.assembly import (
    build_drafter,
    build_model,
    build_stream,
    build_targets,
    drafter_config,
    ends_of,
    place_of,
    read_initial_weights,
    share_frozen,
)
from harness.pipeline.config import DFlashConfig
from harness.pipeline.data import load_documents
from harness.pipeline.drafter_worker import DrafterWorker
from harness.pipeline.queues import OrderedQueue
from harness.pipeline.replicas import GradientAverager, mean_gradients
from harness.pipeline.support import devices_of, unsupported
from harness.pipeline.target import Target
from harness.pipeline.target_worker import Batches, ItemQueue, OpenTargets, TargetWorker
from harness.pipeline.tokenizer import load_tokenizer


@dataclass(frozen=True)
class _Built:
    """What a run has before it has drafters."""

    settings: PipelineSettings
    config: DFlashConfig
    targets: Mapping[torch.device, Target]
    producers: Callable[[], Sequence[str]]
    averager: GradientAverager | None


class Pipeline:
    """DFlash training as a workload: T target threads, M drafter threads, a queue for each drafter.

    The run is M · `steps` items. Drafter i trains on the items i, i + M, i + 2M, …, whichever target makes them, so
    its losses depend on the scenario and the settings only, and not on how the threads take turns.
    """

    def unsupported(self, scenario: Scenario) -> str:
        """Why the scenario cannot run on this machine; "" when it can."""
        return unsupported(scenario)

    def setup(self, scenario: Scenario, ctx: Context) -> None:
        """Build everything; nothing is compiled. Raises `UserError` for what cannot run here, or nowhere."""
        built = self._build(scenario, ctx)
        drafter_devices = devices_of(scenario, "drafter")
        frozen = share_frozen(dict(built.targets), drafter_devices[: scenario.drafters])
        weights = read_initial_weights(built.settings)
        self._drafters.extend(
            build_drafter(
                built.settings,
                scenario,
                built.config,
                frozen,
                weights,
                number=i,
                queue=self._queues[i],
                producers=built.producers,
                averager=built.averager,
                ctx=ctx,
            )
            for i in range(scenario.drafters)
        )

    def setup_targets(self, scenario: Scenario, ctx: Context) -> None:
        """Build all but the drafters, which run elsewhere (`lone_drafter`) on what comes out of `queues`."""
        self._build(scenario, ctx)

    def _build(self, scenario: Scenario, ctx: Context) -> _Built:
        if reason := unsupported(scenario):
            raise UserError(reason)
        settings = parse_settings(dict(ctx.settings), "settings")
        skip_errors = scenario.on_error == "skip"
        target_devices = devices_of(scenario, "target")
        self._ctx = ctx
        self._skip_errors = skip_errors
        self._drafters: list[DrafterWorker] = []

        tokenizer = load_tokenizer(settings.tokenizer, settings.target_model)
        documents = load_documents(settings.data, tokenizer)
        model = build_model(settings, tokenizer, scenario.seed, target_devices[0])
        config = drafter_config(settings, model)

        numbers = range(scenario.drafters)
        self._streams = [
            build_stream(
                settings, scenario, documents, pad_id=tokenizer.pad_id, block_size=config.block_size, drafter=i
            )
            for i in numbers
        ]
        self._batches = Batches(self._streams, scenario.drafters * scenario.steps)
        self._queues: list[ItemQueue] = [OrderedQueue(settings.queue_depth) for _ in numbers]
        self._averager = None
        if scenario.replicas == "synchronised":
            self._averager = GradientAverager(f"drafter-{i}" for i in numbers)

        targets = build_targets(model, config.target_layer_ids, target_devices[: scenario.targets])
        open_targets = OpenTargets([f"target-{i}" for i in range(scenario.targets)], self._queues)
        self._targets = [
            TargetWorker(
                f"target-{i}",
                device := target_devices[i % len(target_devices)],
                target=targets[device],
                batches=self._batches,
                queues=self._queues,
                open_targets=open_targets,
                ctx=ctx,
                skip_errors=skip_errors,
            )
            for i in range(scenario.targets)
        ]
        for number, stream in enumerate(self._streams):
            # Longer documents are split, which is no error, but whoever reads the losses should know.
            longer = sum(len(document) > stream.budget for document in documents)
            facts = {"documents": len(documents), "longer_than_budget": longer, "budget": stream.budget}
            ctx.fact(place_of(scenario, number)[0], "data", facts)
        return _Built(settings, config, targets, lambda: open_targets.names, self._averager)

    @property
    def drafters(self) -> list[DrafterWorker]:
        """The drafters, by number; none after `setup_targets`."""
        return self._drafters

    @property
    def queues(self) -> Sequence[ItemQueue]:
        """Of each drafter, by number: for whoever runs them elsewhere than on a thread of this process."""
        return self._queues

    def workers(self) -> list[Worker]:
        """Targets, then drafters; each is to be run on a thread of its own."""
        targets = [Worker(w.name, "target", str(w.device), w.run) for w in self._targets]
        return targets + [Worker(w.name, "drafter", str(w.device), w.run) for w in self._drafters]

    def stop(self) -> None:
        """Unblock every worker: each ends at its next queue or barrier. From any thread, more than once."""
        for queue in self._queues:
            queue.abort()
        if self._averager is not None:
            self._averager.abort()

    def warm_up(self, kind: str) -> None:
        """Compile on the calling thread what drafters will run: their first batch, without counting as a step.

        Kinds: main_no_grad (drafter 0's forward and loss, without gradients), main_grad (its backward too),
        per_device (likewise, the first drafter of each device). The run itself is as if this had not been called.
        """
        if kind not in ("main_no_grad", "main_grad", "per_device"):
            raise ValueError(f"no warm-up is called {kind!r}")
        first_of: dict[torch.device, int] = {}
        for i, drafter in enumerate(self._drafters):
            first_of.setdefault(drafter.device, i)
        for i in first_of.values() if kind == "per_device" else [0]:
            packed = next(self._streams[i].restarted())
            item = self._targets[i % len(self._targets)].make(i, packed)
            self._drafters[i].warm_up(item, grad=kind != "main_no_grad")

    def nudge(self, change: Callable[[Iterable[torch.Tensor]], None]) -> None:
        """Begin with other weights: those that `change` makes of each drafter's (`harness.core.workload.Nudges`)."""
        for drafter in self._drafters:
            drafter.nudge(change)

    def reference(self, scenario: Scenario) -> None:
        """The same run on the calling thread, instead of `workers`: what the losses are when nobody interferes."""
        live = list(self._drafters)
        for _ in range(scenario.steps):
            for _ in self._drafters:
                numbered = self._batches.next()
                if numbered is None or not self._targets[0].serve(*numbered):
                    return
            computed = []
            for drafter in live:
                item = drafter.queue.get()
                if item is not None:
                    loss, ok = drafter.compute(item)
                    if ok or self._skip_errors:
                        computed.append((drafter, item, loss))
            mean = None
            if self._averager is not None:
                mean = mean_gradients({d.name: d.contribution(loss) for d, _, loss in computed})
            going_on = [d for d, item, loss in computed if d.apply(item, loss, mean) or self._skip_errors]
            for drafter in live:
                if drafter not in going_on:
                    drafter.leave()
            live = going_on

    def check(self) -> list[str]:
        """What became of the items, once the workers have ended; a line for each drafter where they do not add up."""
        problems = []
        for drafter in self._drafters:
            counts, outcomes = drafter.queue.counts, drafter.outcomes
            self._ctx.fact(drafter.name, "items", {"offered": counts.offered, "left": counts.left, **outcomes})
            if counts.offered != counts.taken + counts.left:
                problems.append(
                    f"{drafter.name}: {counts.offered} items were queued, {counts.taken} taken and {counts.left} left"
                )
            if counts.taken != outcomes.total():
                problems.append(
                    f"{drafter.name}: took {counts.taken} items, but accounts for {outcomes.total()}: {dict(outcomes)}"
                )
        return problems


def lone_drafter(scenario: Scenario, ctx: Context, number: int, queue: ItemQueue) -> DrafterWorker:
    """Drafter `number` as `Pipeline` builds it, without the others and without a target: `queue` gives it its items.

    Raises `UserError` as `Pipeline.setup`; data are not read.
    """
    if reason := unsupported(scenario):
        raise UserError(reason)
    settings = parse_settings(dict(ctx.settings), "settings")
    tokenizer = load_tokenizer(settings.tokenizer, settings.target_model)
    device = place_of(scenario, number)[1]
    drawn_on = devices_of(scenario, "target")[0]  # where the targets' process draws the same numbers
    model = build_model(settings, tokenizer, scenario.seed, drawn_on, ends_only=True)
    return build_drafter(
        settings,
        scenario,
        drafter_config(settings, model),
        {device: ends_of(model, device)},
        read_initial_weights(settings),
        number=number,
        queue=queue,
        producers=tuple,  # they are in another process
        averager=None,
        ctx=ctx,
    )
