"""Small wrong changes to the product, each run against the tests of its room: what no test notices is listed."""
