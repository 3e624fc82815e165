"""The demo: a year of flights goes through Spark into a change log, and out to subscribers."""
