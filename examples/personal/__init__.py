"""Personal data: another region gets some topics and some records, and no byte of the rest."""
