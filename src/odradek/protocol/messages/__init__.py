"""One module for each message of Kafka's protocol and logs; import the module that you need."""
