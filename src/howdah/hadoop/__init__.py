"""A Hadoop client without a JVM."""
