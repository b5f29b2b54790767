"""Small wrong changes to the product, each run against the tests of its room; those that no test notices are listed."""
