"""The target model: a Qwen3 model of transformers whose hidden states the drafters learn from."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM

from harness.core.errors import UserError

CPU = torch.device("cpu")


class Target:
    """A frozen target model on one device.

    One instance may serve several threads. It runs the decoder layers itself: the model's own `forward` with
    `output_hidden_states` installs hooks (in some versions it replaces the layers' `forward` for the time of
    the call), which threads that share the model would see of each other. Running a layer writes nothing to
    it.
    """

    def __init__(self, model: Qwen3ForCausalLM, layer_ids: Sequence[int]) -> None:
        self.model: Any = model.eval().requires_grad_(False)
        self.layer_ids = tuple(layer_ids)
        layers = len(self.model.model.layers)
        if bad := [i for i in self.layer_ids if not 0 <= i < layers]:
            raise UserError(f"the target has layers 0 to {layers - 1}; layer {bad[0]} cannot be tapped")

    @property
    def embedding(self) -> nn.Embedding:
        """The token embedding, which the drafters share."""
        embedding: nn.Embedding = self.model.model.embed_tokens
        return embedding

    @property
    def lm_head(self) -> nn.Linear:
        """The output projection, which the drafters share."""
        head: nn.Linear = self.model.lm_head
        return head

    @torch.no_grad()
    def __call__(self, ids: Tensor, positions: Tensor, document_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Features [Bt, S, K·d] and final hidden states [Bt, S, d] of packed sequences, all inputs [Bt, S].

        The features are transformers' `hidden_states[id + 1]` for each tapped layer; the final hidden states
        its `last_hidden_state`. A token attends to itself and to what comes before it in its own document, so
        each document comes out as if it had been run alone.
        """
        decoder = self.model.model
        mask = document_causal_mask(document_ids)
        hidden = decoder.embed_tokens(ids)
        rotary = decoder.rotary_emb(hidden, positions)
        tapped = {}
        for number, layer in enumerate(decoder.layers):
            output = layer(
                hidden, attention_mask=mask, position_ids=positions, position_embeddings=rotary, use_cache=False
            )
            hidden = output[0] if isinstance(output, tuple) else output  # a tuple before transformers 4.54
            if number in self.layer_ids:
                tapped[number] = hidden
        final = decoder.norm(hidden)
        if len(decoder.layers) - 1 in tapped:
            tapped[len(decoder.layers) - 1] = final  # transformers norms the last entry of `hidden_states`
        return torch.cat([tapped[i] for i in self.layer_ids], dim=-1), final


def document_causal_mask(document_ids: Tensor) -> Tensor:
    """Boolean mask [Bt, 1, S, S], true where a query (row) sees a key: the same document, and not later."""
    length = document_ids.shape[1]
    same = document_ids[:, :, None] == document_ids[:, None, :]
    causal = torch.ones((length, length), dtype=torch.bool, device=document_ids.device).tril()
    return (same & causal)[:, None]


def random_qwen3(
    *,
    vocab_size: int,
    hidden_size: int,
    intermediate_size: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    rope_theta: float,
    eps: float,
    max_positions: int,
    seed: int,
    device: torch.device = CPU,
    ends_only: bool = False,
) -> Qwen3ForCausalLM:
    """A Qwen3 model with random float32 weights, the same for the same arguments (and kind of device).

    Matrices are normal with standard deviation 1/√(input size), so signals keep their size whatever the
    width; the embedding's is 0.02 as in Qwen's models, and norms are ones. Untrained cross-entropy is about
    ln V + 1/2.

    `ends_only`: without the layers, but with the same embedding and `lm_head`, and the whole model's `config`. The
    layers' numbers are drawn all the same, a matrix at a time, since those of `lm_head` come after them.
    """
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=intermediate_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=eps,
        max_position_embeddings=max_positions,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
        **_rope(rope_theta),
    )
    # The constructor draws weights of its own from the global generator.
    made_on = device if device.type == "cuda" else CPU
    with torch.random.fork_rng(devices=[] if made_on == CPU else [device]):
        with made_on:
            model = Qwen3ForCausalLM(_without_layers(config) if ends_only else config)
        with torch.device("meta"):
            shapes = Qwen3ForCausalLM(config) if ends_only else model
    kept = dict(model.named_parameters())
    generator = torch.Generator(made_on).manual_seed(seed)
    with torch.no_grad():
        for name, shape in shapes.named_parameters():
            parameter = kept[name] if name in kept else torch.empty(shape.shape, device=made_on)
            if parameter.ndim == 1:
                parameter.fill_(1.0)
            else:
                std = 0.02 if "embed_tokens" in name else parameter.shape[1] ** -0.5
                parameter.normal_(0.0, std, generator=generator)
    if ends_only:
        model.config = config
    return model.to(device)


class _Ends(Qwen3ForCausalLM):  # type: ignore[misc]  # transformers is not checked
    """A model of no layers, to which a folder's layers are nothing unexpected."""

    _keys_to_ignore_on_load_unexpected = (r"model\.layers\.",)


def load_qwen3(folder: str, dtype: torch.dtype, *, ends_only: bool = False) -> Qwen3ForCausalLM:
    """A Qwen3 model from a local folder, on the CPU: safetensors only, nothing downloaded, no code of the
    folder run. `ends_only`: without the layers, but with the whole model's `config`.

    Raises `UserError` when the folder is no such model, or its weights are pickled, incomplete or damaged.
    """
    path = Path(folder).expanduser()
    _check_architecture(path)
    _check_weights(path)
    key = "dtype" if _version(transformers.__version__) >= (4, 56) else "torch_dtype"
    try:
        config = Qwen3Config.from_pretrained(str(path), local_files_only=True)
        options = {"config": _without_layers(config)} if ends_only else {}
        model, info = (_Ends if ends_only else Qwen3ForCausalLM).from_pretrained(
            str(path),
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=False,
            attn_implementation="sdpa",
            output_loading_info=True,
            **{key: dtype},
            **options,
        )
    except MemoryError:
        raise
    except Exception as error:  # the loader raises what each file format's reader happens to raise
        raise UserError(f"target_model: {path} cannot be loaded: {str(error).strip().splitlines()[0]}") from error
    if missing := sorted(info["missing_keys"]):
        raise UserError(f"target_model: {path} lacks {len(missing)} weights, among them {missing[0]}")
    loaded: Qwen3ForCausalLM = model
    if ends_only:
        loaded.config = config
    return loaded


def _without_layers(config: Qwen3Config) -> Qwen3Config:
    shallow = copy.deepcopy(config)
    shallow.num_hidden_layers, shallow.layer_types = 0, []
    return shallow


def _check_architecture(path: Path) -> None:
    if not path.is_dir():
        raise UserError(f"target_model: {path} is no folder; give the local folder of a Qwen3 model")
    try:
        config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"target_model: {path} has no config.json; is it the folder of a model?") from error
    except (OSError, ValueError) as error:
        raise UserError(f"target_model: {path / 'config.json'} cannot be read: {error}") from error
    kind = config.get("model_type") if isinstance(config, dict) else None
    if kind != "qwen3":
        raise UserError(f'target_model: {path} is a model of type {json.dumps(kind)}; only "qwen3" can be a target')
    if config.get("use_sliding_window") or "sliding_attention" in (config.get("layer_types") or ()):
        raise UserError(f"target_model: {path} has sliding-window layers, which packed sequences do not support")


def _check_weights(path: Path) -> None:
    index = path / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"target_model: {index} cannot be read: {error}") from error
        if absent := [name for name in shards if not (path / name).is_file()]:
            raise UserError(f"target_model: {path} lacks {absent[0]}, which {index.name} names")
    elif not (path / "model.safetensors").is_file():
        if pickled := sorted(file.name for end in ("bin", "pt", "pth") for file in path.glob(f"*.{end}")):
            raise UserError(
                f"target_model: {path} has only pickled weights ({pickled[0]}), which can run any code when read; "
                "convert them to safetensors"
            )
        raise UserError(f"target_model: {path} has no weights (model.safetensors)")


def _rope(theta: float) -> dict[str, Any]:
    """The argument that sets the RoPE base: a dict from transformers 5 on, a number before."""
    if _version(transformers.__version__) >= (5, 0):
        return {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}
    return {"rope_theta": theta}


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")[:2]
    return int(major), int(minor)
