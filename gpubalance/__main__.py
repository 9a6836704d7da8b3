"""`python -m gpubalance`, which is also what a launcher such as torchrun starts."""

from gpubalance.cli.entry import main

if __name__ == "__main__":
    main()
