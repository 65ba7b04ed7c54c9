"""``python -m cqstore``: the command, where no script of that name is on the path."""

from cqstore.cli import main

if __name__ == "__main__":
    main()
