"""`python -m naiad` is the `naiad` command."""

from naiad.cli.main import main

if __name__ == "__main__":
    main()
