"""The compiled kernel has the types of the reference (`compiled.pyx`)."""

from amqpd.kernel.reference import INCOMPLETE as INCOMPLETE
from amqpd.kernel.reference import NAME as NAME
from amqpd.kernel.reference import Mixed as Mixed
from amqpd.kernel.reference import Run as Run
from amqpd.kernel.reference import encode_ack as encode_ack
from amqpd.kernel.reference import encode_content as encode_content
from amqpd.kernel.reference import encode_deliveries as encode_deliveries
from amqpd.kernel.reference import scan_acks as scan_acks
from amqpd.kernel.reference import scan_batch as scan_batch
from amqpd.kernel.reference import scan_publishes as scan_publishes
