"""The command line as ``python -m unseam``."""

from unseam.cli import main

if __name__ == "__main__":
    main()
