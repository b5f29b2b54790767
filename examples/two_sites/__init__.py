"""A site that dies whole, and clients that go on at the other one."""
