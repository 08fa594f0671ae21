"""`python -m untether`."""

from .cli import main

main()
