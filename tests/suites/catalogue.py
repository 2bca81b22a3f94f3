"""What is to be known of each suite: its command, the certificates it expects, what it cannot run here.

What comes in: a checkout and the Python (or other tool) to run it with.
What goes out: `SUITES`, by name.
Rules: 1. Only a suite's own options and environment variables are used. 2. Whatever is left out is left out on
both brokers, and says why. 3. Tests that fail are not tried again: a broker has one chance.
Not here: how a run is isolated (`network.py`) and judged (`verdicts.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.clients.rabbitmq_process import NODE_NAME

PORT = 5672
TLS_PORT = 5671
DOCKER_PORT = 2375
MANAGEMENT_PORT = 15672
MINUTES = 60.0
PEM = re.compile(r"-----BEGIN ([A-Z ]+)-----.*?-----END \1-----", re.DOTALL)


@dataclass(frozen=True)
class Certificates:
    """The server's side of TLS, as files."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True)
class Suite:
    """`command` and `environment` may hold {python}, {checkout}, {results} (a folder for JUnit files), {host} and
    {url_host} (the loopback address of this run, in a URL with brackets), {certificates} (the folder of the made-up
    certificates) and {rabbitmqctl} (RabbitMQ's own command, or one that translates for amqpd)."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    certificates: Callable[[Path, Path], Certificates] | None = None
    # The suite wants to start a container with the broker: a stand-in tells it where the broker is.
    docker: bool = False
    # RabbitMQ's plugins, where the suite speaks to the management API (`MANAGEMENT_PORT` of both brokers).
    plugins: tuple[str, ...] = ()
    # Where in the checkout the command runs.
    folder: str = "."
    # What rabbitmqctl does first: the users and virtual hosts that the suite expects.
    setup: tuple[tuple[str, ...], ...] = ()
    # Where in the checkout the tool puts its JUnit files when it cannot be told.
    reports: str = ""
    # What amqpd is started with for this suite, and why.
    settings: Mapping[str, str] = field(default_factory=dict)
    # Where its standard output goes, in the folder of results.
    output: str = "output.txt"
    # Tests that run on neither broker: {pytest's id, or a name that the command has: reason}.
    left_out: Mapping[str, str] = field(default_factory=dict)
    # For suites that hang: on a busy machine the longest takes half of it.
    time_limit_s: float = 60 * MINUTES


def in_folder(folder: str, authority: str, certificate: str, key: str) -> Callable[[Path, Path], Certificates]:
    def find(checkout: Path, scratch: Path) -> Certificates:
        files = checkout / folder
        return Certificates(files / authority, files / certificate, files / key)

    return find


def in_dockerfile(checkout: Path, scratch: Path) -> Certificates:
    """py-amqp's image is built with the server's certificates written into its Dockerfile."""
    text = (checkout / "Dockerfile").read_text().replace("\\n\\\n", "\n")
    files = Certificates(scratch / "ca.pem", scratch / "server.pem", scratch / "server.key")
    blocks = [match.group(0) + "\n" for match in PEM.finditer(text)]
    for path, block in zip((files.authority, files.certificate, files.key), blocks, strict=True):
        path.write_text(block)
    return files


MANAGED = (
    *("rabbitmq_management", "rabbitmq_shovel_management", "rabbitmq_federation_management"),
    "rabbitmq_stream_management",
)
PYTEST = ("{python}", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml={results}/junit.xml")
ONE_TRY = ("-p", "no:rerunfailures", "-p", "no:sugar")
GO = {"GOPROXY": "off", "AMQP_URL": f"amqp://guest:guest@localhost:{PORT}/"}
EVERYTHING = (".*", ".*", ".*")
ALL_FLAGS = ("enable_feature_flag", "all")
# Optimized dependencies, which a profile asks for, take an hour to compile.
CARGO = ("cargo", "test", "--offline", "--no-fail-fast")
CARGO_LIGHT = (*CARGO, "--config", 'profile.dev.package."*".opt-level=0', "--config", "profile.test.debug=0")
CLUSTER_NAME = ("set_cluster_name", "rabbitmq@localhost")
HTTP_API = "needs the HTTP interface of RabbitMQ's management plugin"
RECOVERY = "TestConnectionRecovery"
EXPIRED = "TestTLSHandshake"
PERL_OUTSIDE = "012_timeout.t"
BUNNY_LEFT_OUT = {
    "connection_recovery_spec.rb": HTTP_API,
    "toxiproxy_spec.rb": "needs a Toxiproxy",
    "default_queue_type_spec.rb": "needs virtual hosts with a default queue type, and queues of type stream",
}
OUTSIDE = "connects to a host on the internet, to look at its certificate"
OUTSIDE_NAME = "looks up the address of a host on the internet"


def pika_certificates(checkout: Path, scratch: Path) -> Certificates:
    """Versions up to 1.4 have them in another folder."""
    folder = "tests/certs" if (checkout / "tests/certs").exists() else "testdata/certs"
    return in_folder(folder, "ca_certificate.pem", "server_certificate.pem", "server_key.pem")(checkout, scratch)


aiormq_certificates = in_folder("tests/certs", "ca.pem", "server.pem", "server.key")

SUITES: dict[str, Suite] = {
    "pika": Suite(
        (*PYTEST, "--timeout=120", "tests/acceptance"),
        certificates=pika_certificates,
        left_out={
            "tests/acceptance/io_services_tests.py::TestGetaddrinfoWWWGoogleDotComPort80": OUTSIDE_NAME,
        },
    ),
    "pika-tls": Suite(
        (*PYTEST, "--timeout=120", "--use-tls", "tests/acceptance/async_adapter_tests.py"),
        certificates=pika_certificates,
    ),
    "aiormq": Suite(
        (*PYTEST, "tests"),
        environment={"AMQP_URL": f"amqp://guest:guest@localhost:{PORT}//"},
        certificates=aiormq_certificates,
    ),
    "aio-pika": Suite(
        (*PYTEST, "tests"),
        environment={"DOCKER_HOST": f"tcp://127.0.0.1:{DOCKER_PORT}"},
        docker=True,
    ),
    "py-amqp": Suite(
        (*PYTEST, *ONE_TRY, "-E", "rabbitmq", "t/integration"),
        certificates=in_dockerfile,
        left_out={
            "t/integration/test_rmq.py::test_tls_default_certs": OUTSIDE,
            "t/integration/test_rmq.py::test_tls_no_default_certs_fails": OUTSIDE,
        },
    ),
    "kombu": Suite(
        (*PYTEST, *ONE_TRY, "-E", "py-amqp", "t/integration/test_py_amqp.py"),
    ),
    "amqp091-go": Suite(
        ("go", "test", "-tags=integration", "-count=1", f"-skip=^{RECOVERY}", "-json", "."),
        left_out={f"{RECOVERY}*": HTTP_API},
        environment={**GO, "RABBITMQ_RABBITMQCTL_PATH": "{rabbitmqctl}"},
        output="go-test.json",
    ),
    "streadway-amqp": Suite(
        # Today's vet refuses what it was written with.
        ("go", "test", "-tags=integration", "-count=1", "-vet=off", f"-skip=^{EXPIRED}$", "-json", "."),
        left_out={EXPIRED: "its certificate expired in 2024, and what its own server does then ends the other tests"},
        environment=GO,
        output="go-test.json",
    ),
    "watermill-amqp": Suite(
        ("go", "test", "-count=1", "-timeout=55m", "-parallel=20", "-json", "./pkg/amqp"),
        environment={**GO, "WATERMILL_TEST_AMQP_URI": f"amqp://guest:guest@localhost:{PORT}/"},
        output="go-test.json",
    ),
    "amqplib": Suite(
        (
            # The suite's own limit of a second counts for each file as a whole, which is short on a busy machine.
            *("node", "--test", "--test-timeout=30000"),
            *("--test-reporter=junit", "--test-reporter-destination={results}/junit.xml"),
        ),
        # It asserts that connection.start says so.
        settings={"AMQPD_SERVER_PRODUCT": "RabbitMQ"},
    ),
    "amqp-client.js": Suite(
        ("node_modules/.bin/vitest", "run", "--reporter=junit", "--outputFile={results}/junit.xml"),
        environment={"AMQPS_URL": f"amqps://localhost:{TLS_PORT}?insecure"},
    ),
    "node-rabbitmq-client": Suite(
        (
            *("sh", "-c", 'exec node -r ts-node/register --test --test-reporter=junit "$0" test/*.ts'),
            "--test-reporter-destination={results}/junit.xml",
        ),
        environment={"RABBITMQ_URL": f"amqp://guest:guest@localhost:{PORT}"},
    ),
    "rabbitmq-java-client": Suite(
        (
            *("mvn", "--offline", "--batch-mode", "verify", "-P!setup-test-cluster"),
            "-Dmaven.test.failure.ignore",
            *("-Drabbitmqctl.bin={rabbitmqctl}", f"-Dtest-broker.A.nodename={NODE_NAME}"),
            "-Dit.test=ClientTestSuite,FunctionalTestSuite,ServerTestSuite",
        ),
        reports="target/failsafe-reports",
        # Some of its tests are for certain versions of RabbitMQ, and ask for no other product's.
        settings={"AMQPD_SERVER_PRODUCT": "RabbitMQ", "AMQPD_SERVER_VERSION": "3.10.8"},
    ),
    "php-amqplib": Suite(
        ("phpunit", "--no-coverage", "--log-junit={results}/junit.xml"),
        certificates=in_folder("tests/certs", "ca_certificate.pem", "server_certificate.pem", "server_key.pem"),
    ),
    # BUNDLE_GEMFILE names a Gemfile with what its specs need of what is installed.
    "bunny": Suite(
        (
            *("rspec", "--format=RspecJunitFormatter", "--out={results}/junit.xml", "--format=documentation"),
            *(f"--exclude-pattern=spec/higher_level_api/integration/{{{','.join(BUNNY_LEFT_OUT)}}}",),
            *("spec/higher_level_api/integration", "spec/lower_level_api/integration", "spec/issues"),
        ),
        environment={
            "RUN_TLS_TESTS": "true",
            # Those in the checkout are of another authority than the one beside them.
            "BUNNY_CERTIFICATE_DIR": "{certificates}",
            "RUBYLIB": "{checkout}/lib",
        },
        left_out=BUNNY_LEFT_OUT,
        setup=(
            ("add_vhost", "bunny_testbed"),
            ("add_user", "bunny_gem", "bunny_password"),
            ("add_user", "bunny_reader", "reader_password"),
            ("set_permissions", "-p", "bunny_testbed", "bunny_gem", *EVERYTHING),
            ("set_permissions", "-p", "bunny_testbed", "guest", *EVERYTHING),
            ("set_permissions", "-p", "bunny_testbed", "bunny_reader", "^---$", "^---$", ".*"),
        ),
    ),
    # After `perl Makefile.PL && make` in the checkout.
    "net-amqp-rabbitmq": Suite(
        (
            "sh",
            "-c",
            'exec prove --blib --formatter=TAP::Formatter::JUnit --merge $(ls t/*.t | grep -v "$1") > "$0"',
            "{results}/junit.xml",
            PERL_OUTSIDE,
        ),
        left_out={PERL_OUTSIDE: "connects to a host on the internet that does not answer"},
        environment={
            "MQHOST": "localhost",
            "MQPORT": str(PORT),
            "MQUSERNAME": "guest",
            "MQPASSWORD": "guest",
            "MQVHOST": "/",
            "MQSSLHOST": "localhost",
            "MQSSLPORT": str(TLS_PORT),
            "MQSSLUSERNAME": "guest",
            "MQSSLPASSWORD": "guest",
            "MQSSLVHOST": "/",
            "MQSSLCACERT": "{certificates}/ca_certificate.pem",
        },
        settings={"AMQPD_SERVER_PRODUCT": "RabbitMQ"},
    ),
    "amqprs": Suite(
        ("cargo", "test", "--offline", "--package=amqprs", "--no-fail-fast", "--lib", "--tests"),
        setup=(
            ("add_user", "user", "bitnami"),
            ("set_user_tags", "user", "administrator"),
            ("set_permissions", "-p", "/", "user", *EVERYTHING),
        ),
        output="cargo-test.txt",
    ),
    "lapin": Suite(
        ("cargo", "test", "--offline", "--no-fail-fast", "--lib", "--tests"),
        environment={"AMQP_ADDR": f"amqp://localhost:{PORT}/%2f"},
        output="cargo-test.txt",
    ),
    # What follows speaks to the management API.
    "rabbit-hole": Suite(
        ("go", "test", "-count=1", "-timeout=55m", "-ginkgo.junit-report={results}/junit.xml", "."),
        environment={"GOPROXY": "off", "GOMEGA_DEFAULT_EVENTUALLY_TIMEOUT": "5s"},
        plugins=MANAGED,
        setup=(
            ("add_user", "policymaker", "policymaker"),
            ("set_user_tags", "policymaker", "policymaker"),
            ("set_permissions", "-p", "/", "policymaker", *EVERYTHING),
            ("add_vhost", "rabbit/hole"),
            ("set_permissions", "-p", "rabbit/hole", "guest", *EVERYTHING),
            ("set_permissions", "-p", "rabbit/hole", "policymaker", *EVERYTHING),
            CLUSTER_NAME,
            ALL_FLAGS,
        ),
    ),
    "hop": Suite(
        ("mvn", "--offline", "--batch-mode", "-Dspotless.check.skip", "-Dmaven.test.failure.ignore", "test"),
        reports="target/surefire-reports",
        plugins=(*MANAGED, "rabbitmq_mqtt"),
        setup=(
            ("set_topic_permissions", "-p", "/", "guest", "amq.topic", ".*", ".*"),
            ("add_vhost", "vh1"),
            ("set_permissions", "-p", "vh1", "guest", *EVERYTHING),
            ("add_vhost", "vh2"),
            ("set_permissions", "-p", "vh2", "guest", *EVERYTHING),
            ALL_FLAGS,
        ),
    ),
    # After `cargo-nextest`, a program that only its authors' command needs, was taken out of its Cargo.toml.
    "rabbitmq-http-api-rs": Suite(
        (*CARGO_LIGHT, "--all-features", "--test=integration", "--", "--test-threads=1"),
        plugins=MANAGED,
        setup=(
            ("add_user", "rust3", "rust3"),
            ("set_permissions", "-p", "/", "rust3", *EVERYTHING),
            ("add_vhost", "rust/http/api/client"),
            ("set_permissions", "-p", "rust/http/api/client", "guest", *EVERYTHING),
            CLUSTER_NAME,
            ALL_FLAGS,
        ),
        output="cargo-test.txt",
    ),
    "rabbitmqadmin-ng": Suite(
        (*CARGO_LIGHT, "--test=integration", "--", "--test-threads=1"),
        plugins=MANAGED,
        setup=(
            ("add_vhost", "rust/rabbitmqadmin"),
            ("set_permissions", "-p", "rust/rabbitmqadmin", "guest", *EVERYTHING),
            CLUSTER_NAME,
            ALL_FLAGS,
        ),
        output="cargo-test.txt",
    ),
    "pyrabbit2": Suite((*PYTEST, "tests"), plugins=MANAGED),
    "rabbitmq-admin": Suite(
        (*PYTEST, "rabbitmq_admin/tests/api_tests.py", "rabbitmq_admin/tests/base_tests.py"),
        environment={"RABBITMQ_HOST": "127.0.0.1"},
        plugins=MANAGED,
    ),
    "rabbitmq_exporter": Suite(
        ("go", "test", "-tags=integration", "-count=1", "-json", "./..."),
        environment={"GOPROXY": "off", "DOCKER_HOST": f"tcp://127.0.0.1:{DOCKER_PORT}"},
        docker=True,
        plugins=MANAGED,
        # The name that a container of the host `localtest` gives its cluster.
        setup=(("set_cluster_name", "rabbit@localtest"),),
        output="go-test.json",
    ),
}
