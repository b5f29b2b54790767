"""The world in a box: real brokers on virtual time, a simulated network and a disk that fails, all from one seed."""
