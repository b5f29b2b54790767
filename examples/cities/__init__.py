"""Cities: prices by supply and demand in each city, and the revenue of all by hour at a centre."""
