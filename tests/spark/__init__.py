"""Tests of the pipeline, on a local Spark and logs of some rows."""
