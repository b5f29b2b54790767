"""Orders whose events stay in order, whatever moves or dies. The pages: docs/examples/orders.md and modelling.md."""
