"""What becomes of messages whose publishers trace them (W3C Trace Context): spans, as plain facts.

It may import the kernel and message properties. Not here: OpenTelemetry's SDK and the way to a collector
(`amqpd/process/spans.py`), the copies that an operator looks at (`publishing/firehose.py`), what is kept of all
messages (`audit/`).
"""
