"""The parts of the pytest plugin. They import nothing but pytest until there is a matrix to be run."""
