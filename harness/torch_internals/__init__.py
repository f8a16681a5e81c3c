"""The only package that names private parts of torch: one adapter a file.

An adapter observes (or changes) one private thing. Its docstring says which name it touches, on which
torch versions it was verified and what it does when the name is missing: `install` then answers an
`Availability` that says so, and changes nothing.
"""
