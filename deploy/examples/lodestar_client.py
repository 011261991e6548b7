# SPDX-License-Identifier: Apache-2.0
"""A worker of Lodestar's protocol in plain Python: everything but the arithmetic.

Worker(coordinator, name, task).run() registers, joins, takes grants, pulls weights, lets `task`
compute and pushes the result; beside it a thread sends heartbeats. A server that is away, restarts
or has forgotten the worker costs a pause and a new registration; a report or a contribution that
was not acknowledged is sent again. python_worker.py beside this file shows a task. The protocol is
described in proto/README.md; the stubs come from proto/*.proto:

    protoc -I. --python_out=STUBS --grpc_out=STUBS \\
        --plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin \\
        proto/model.proto proto/job.proto proto/cluster_service.proto proto/parameter_service.proto
"""

import array
import math
import os
import random
import struct
import sys
import threading
import time

import grpc

from proto import cluster_service_pb2 as cluster
from proto import cluster_service_pb2_grpc as cluster_grpc
from proto import job_pb2 as job
from proto import model_pb2 as model
from proto import parameter_service_pb2 as parameters
from proto import parameter_service_pb2_grpc as parameters_grpc

WIRE_VERSION = 3
CHUNK_ELEMENTS = 1 << 19  # 2 MiB of fp32; a chunk may have 4 MiB
CALL_SECONDS = 10  # for an answer that is not held back on purpose
HOLD_SECONDS = 5  # that the coordinator may wait for work before it answers WAIT
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 2.0
NAME_HELD_SECONDS = 60  # for the lease of a predecessor that was killed
LEAVING_SECONDS = 30  # for the round at hand, once told to stop
TOLD_TO_STOP = "told to stop"

CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 8 << 20),
    ("grpc.max_send_message_length", 8 << 20),
    ("grpc.enable_http_proxy", 0),
    # By default gRPC waits up to two minutes before it looks again for a server that was away.
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Finds a connection that is cut without a word. Servers allow a ping every 5 s.
    ("grpc.keepalive_time_ms", 10000),
    ("grpc.keepalive_timeout_ms", 10000),
    ("grpc.http2.max_pings_without_data", 0),
    # A new channel is a new connection.
    ("grpc.use_local_subchannel_pool", 1),
]

# The name of every server in its certificate.
SERVER_NAME = "lodestar"


def open_channel(address, credentials=None):
    """`credentials`: a folder with key.pem, certificate.pem and authority.pem, as `gpu_worker --join`
    leaves it in its --state_dir; None: plain text."""
    if credentials is None:
        return grpc.insecure_channel(address, CHANNEL_OPTIONS)

    def content(name):
        with open(os.path.join(credentials, name), "rb") as file:
            return file.read()

    tls = grpc.ssl_channel_credentials(content("authority.pem"), content("key.pem"),
                                       content("certificate.pem"))
    return grpc.secure_channel(
        address, tls, CHANNEL_OPTIONS + [("grpc.ssl_target_name_override", SERVER_NAME)])


# These name a cause that another try meets again. Everything else may be over in a moment.
FINAL_CODES = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.OUT_OF_RANGE,
)
# A call, or a caller, that the server does not know: what names it was damaged on the way, or the
# server is of another release, or has let the caller out. Believed after so many in a row, each over a connection of its own.
UNKNOWN_CODES = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAUTHENTICATED)
MAX_UNKNOWN_CALLS = 5


class Refused(Exception):
    """There is a reason for which trying again is of no use; mostly the server named it."""


class Interrupted(Exception):
    """The life is over, or the worker is to stop; with the reason."""


class Damaged(Exception):
    """A checksum does not hold."""


def _crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C_TABLE = _crc32c_table()


def crc32c(data):
    """CRC-32C (Castagnoli) of bytes, at 10 MB/s."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC32C_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


try:  # A thousand times as fast, where it is installed.
    from google_crc32c import value as crc32c  # noqa: F811
except ImportError:
    pass


def checksum(chunk):
    """The field `crc32c` of a chunk: of its data and, in the upper half, of all other fields."""
    fields = bytearray()
    for field in sorted(chunk.DESCRIPTOR.fields, key=lambda field: field.number):
        value = getattr(chunk, field.name)
        if field.name == "scale":
            fields += struct.pack("<fI", value, 0)
        elif field.name not in ("crc32c", "data", "learning_rate", "weight", "state_vector"):
            fields += struct.pack("<Q", value & (2**64 - 1))
    fields += struct.pack("<Q", len(chunk.data))
    for name, form in (("learning_rate", "<d"), ("weight", "<q")):
        if name in chunk.DESCRIPTOR.fields_by_name and chunk.HasField(name):
            fields += struct.pack(form, getattr(chunk, name))
    return crc32c(bytes(fields)) << 32 | crc32c(chunk.data)


def sample_at(seed, num_samples, position):
    """(epoch, index) of the training sample at a position of the global order."""
    mask64 = (1 << 64) - 1

    def mix(x):
        x = (x + 0x9E3779B97F4A7C15) & mask64
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & mask64
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & mask64
        return x ^ (x >> 31)

    epoch, index = divmod(position, num_samples)
    key = mix(mix(seed) ^ epoch)
    half_bits = 1
    while half_bits < 31 and 4**half_bits < num_samples:
        half_bits += 1
    mask = (1 << half_bits) - 1
    while True:
        left, right = index >> half_bits, index & mask
        for step in range(6):
            left, right = right, left ^ (mix(key ^ mix((right * 6 + step) & mask64)) & mask)
        index = left << half_bits | right
        if index < num_samples:
            return epoch, index


class Task:
    """What a worker computes. Vectors are array('f') over all tensors, one after the other."""

    tensors = []  # (name, shape), in the order in which forward uses them
    fingerprint = ""  # of the data: 16 hex digits, equal for workers that have the same
    num_train_samples = 1
    num_heldout_samples = 0

    def initial_weights(self):
        raise NotImplementedError

    def gradient(self, weights, samples):
        """`samples`: (epoch, index) of each. Returns (mean gradient, sum of losses in nats)."""
        raise NotImplementedError

    def evaluate(self, weights, samples):
        """`samples`: indices of held-out samples. Returns (sum of losses, number correct)."""
        raise NotImplementedError


class Life:
    """One registration: the calls that carry its worker_id and incarnation."""

    def __init__(self, coordinator, registration, credentials):
        self.job = registration.job
        self._identity = {
            "worker_id": registration.worker_id,
            "incarnation": registration.incarnation,
        }
        self._metadata = [("lodestar-life", registration.life_secret)]
        self._layout_hash = registration.layout.hash
        self._buckets = registration.buckets
        self._num_elements = registration.servers[-1].end
        self._coordinator = coordinator
        self._channels = [
            open_channel(server.address, credentials)
            for server in registration.servers
        ]
        self._servers = [parameters_grpc.ParameterServiceStub(c) for c in self._channels]
        self._lock = threading.Lock()
        self._call = None  # under way, and may take long
        self._end_reason = ""
        self._is_over = threading.Event()
        self.activity = "start"
        self._bytes_pushed = self._bytes_pulled = 0
        self._no_more_heartbeats = threading.Event()
        self._heartbeats = threading.Thread(
            target=self._send_heartbeats, args=[registration.heartbeat_ms / 1000], daemon=True
        )
        self._heartbeats.start()

    def close(self):
        self.interrupt("closed")
        self._no_more_heartbeats.set()
        self._heartbeats.join()
        for channel in self._channels:
            channel.close()

    def _send_heartbeats(self, interval_seconds):
        while not self._no_more_heartbeats.wait(interval_seconds):
            try:
                request = cluster.HeartbeatRequest(
                    activity=self.activity,
                    bytes_pushed=self._bytes_pushed,
                    bytes_pulled=self._bytes_pulled,
                    **self._identity,
                )
                self._coordinator.Heartbeat(
                    request, timeout=interval_seconds, metadata=self._metadata
                )
            except grpc.RpcError as error:
                # One that is lost does no harm: the lease lasts for three.
                if error.code() == grpc.StatusCode.ABORTED:
                    self.interrupt(error.details())
                    return

    def interrupt(self, reason):
        """Ends the long call under way, and all later ones, with Interrupted."""
        with self._lock:
            self._end_reason = self._end_reason or reason
            self._is_over.set()
            if self._call is not None:
                self._call.cancel()

    def pause(self, seconds):
        self._is_over.wait(seconds)

    def _track(self, call):
        with self._lock:
            self._call = call
            if self._is_over.is_set():
                call.cancel()
        return call

    def _finish(self, call):
        try:
            return self._track(call).result()
        except grpc.FutureCancelledError:
            raise Interrupted(self._end_reason) from None

    def join(self, task):
        dataset = cluster.DatasetInfo(
            fingerprint=task.fingerprint,
            num_train_samples=task.num_train_samples,
            num_heldout_samples=task.num_heldout_samples,
            tokens_per_sample=1,
        )
        request = cluster.JoinRequest(
            layout_hash=self._layout_hash, dataset=dataset, **self._identity
        )
        self._coordinator.Join(request, timeout=CALL_SECONDS, metadata=self._metadata)

    def next_grant(self, report):
        request = cluster.GrantRequest(
            report=report, hold_ms=HOLD_SECONDS * 1000, **self._identity
        )
        timeout = HOLD_SECONDS + CALL_SECONDS
        return self._finish(
            self._coordinator.NextGrant.future(request, timeout=timeout, metadata=self._metadata)
        )

    def leave(self, reason, report):
        request = cluster.LeaveRequest(reason=reason, report=report, **self._identity)
        self._coordinator.Leave(request, timeout=CALL_SECONDS, metadata=self._metadata)

    def _buckets_of(self, shard):
        return [(i, bucket) for i, bucket in enumerate(self._buckets) if bucket.shard == shard]

    def pull(self, min_round):
        """Returns the weights and the version of each bucket, once they are there."""
        weights = array.array("f", bytes(4 * self._num_elements))
        versions = [0] * len(self._buckets)
        for shard, server in enumerate(self._servers):
            request = parameters.PullRequest(
                min_round=min_round,
                buckets=[index for index, _ in self._buckets_of(shard)],
                encoding=job.ENCODING_FP32,
                **self._identity,
            )
            try:
                for chunk in self._track(server.Pull(request, metadata=self._metadata)):
                    if checksum(chunk) != chunk.crc32c:
                        raise Damaged(f"bucket {chunk.bucket} was damaged on its way here")
                    self._bytes_pulled += len(chunk.data)
                    values = array.array("f", chunk.data)
                    begin = self._buckets[chunk.bucket].begin + chunk.offset
                    weights[begin : begin + len(values)] = values
                    versions[chunk.bucket] = chunk.version
            except grpc.RpcError:
                if self._is_over.is_set():
                    raise Interrupted(self._end_reason) from None
                raise
        return weights, versions

    def push(self, elements, **header):
        """Returns once every server has counted all buckets, by this call or an earlier one."""
        for shard, server in enumerate(self._servers):
            chunks = self._chunks(shard, elements, **header)
            self._finish(server.Push.future(chunks, metadata=self._metadata))

    def _chunks(self, shard, elements, versions=None, **header):
        for index, bucket in self._buckets_of(shard):
            for begin in range(bucket.begin, bucket.end, CHUNK_ELEMENTS):
                data = elements[begin : min(begin + CHUNK_ELEMENTS, bucket.end)].tobytes()
                self._bytes_pushed += len(data)
                chunk = parameters.PushChunk(
                    base_version=versions[index] if versions else 0,
                    bucket=index,
                    offset=begin - bucket.begin,
                    encoding=job.ENCODING_FP32,
                    data=data,
                    **header,
                    **self._identity,
                )
                chunk.crc32c = checksum(chunk)
                yield chunk


class Worker:
    """A member of the cluster for as long as the job lasts, over any number of lives."""

    def __init__(self, coordinator, name, task, credentials=None):
        if sys.byteorder != "little":
            raise Refused("this machine is big endian, but numbers are sent little endian, and this "
                          "example does not convert them; use a little-endian machine")
        self._address = coordinator
        self._credentials = credentials
        self._connect()
        self._name = name
        self._task = task
        self._instance_id = random.getrandbits(63)
        self._stop = threading.Event()
        self._life = None
        self._is_waiting = False
        self._incarnation = 0
        self._unsent_report = None
        self._pause_seconds = FIRST_PAUSE_SECONDS
        self._name_held_since = None
        self._unknown_calls = 0  # in a row
        self._last_topic = None

    def _connect(self):
        self._channel = open_channel(self._address, self._credentials)
        self._coordinator = cluster_grpc.ClusterServiceStub(self._channel)

    def stop(self):
        """Lets the worker finish the round at hand, report it and leave. From any thread, but not from
        a signal handler: that may have interrupted the holder of a lock that is needed here."""
        self._stop.set()
        life = self._life
        if life is None:
            return
        if self._is_waiting:
            life.interrupt(TOLD_TO_STOP)
        else:
            timer = threading.Timer(LEAVING_SECONDS, life.interrupt, [TOLD_TO_STOP])
            timer.daemon = True
            timer.start()

    def run(self):
        """Returns once the job is done or stop() is obeyed: whether the coordinator knows that the
        worker has left. Raises Refused."""
        while True:
            try:
                return self._live()
            except (grpc.RpcError, Interrupted, Damaged) as error:
                text = describe(error)
                if self._stop.is_set():
                    self._say(f"could not tell the servers that this worker leaves: {text}")
                    return False
                self._judge(error)
                self._say(f"not connected ({text}); trying again", topic="not connected")
            self._stop.wait(self._pause_seconds)
            self._pause_seconds = min(2 * self._pause_seconds, LONGEST_PAUSE_SECONDS)

    def _say(self, text, topic=None):
        """Once, however often it happens without a word on another topic in between."""
        if (topic or text) != self._last_topic:
            print(f"{self._name}: {text}", flush=True)
        self._last_topic = topic or text

    def _judge(self, error):
        """Raises Refused if trying again is of no use."""
        code = error.code() if isinstance(error, grpc.RpcError) else None
        if is_final(error):
            raise Refused(describe(error)) from None
        self._unknown_calls = self._unknown_calls + 1 if is_unknown_call(error) else 0
        if self._unknown_calls == MAX_UNKNOWN_CALLS:
            raise Refused(f"{describe(error)}; is {self._address} a ps_server of this release?")
        if self._unknown_calls > 0:
            self._channel.close()
            self._connect()
        if code != grpc.StatusCode.ALREADY_EXISTS:
            self._name_held_since = None
            return
        # A predecessor that was killed holds the name until its lease is over.
        now = time.monotonic()
        self._name_held_since = self._name_held_since or now
        if now - self._name_held_since > NAME_HELD_SECONDS:
            raise Refused(describe(error)) from None

    def _live(self):
        registration = self._register()
        if registration.incarnation != self._incarnation:
            # The round that it is of went on without us, or everything goes back to a checkpoint.
            self._unsent_report = None
            self._incarnation = registration.incarnation
        life = self._life = Life(self._coordinator, registration, self._credentials)
        try:
            self._take_part(life, registration.needs_initial_weights)
            reason = self._carry_out_grants(life)
        except Interrupted:
            if not self._stop.is_set():
                raise
            reason = TOLD_TO_STOP
        except grpc.RpcError as error:
            if is_final(error):
                self._leave_quietly(life, describe(error))
            raise
        except Refused as refusal:
            self._leave_quietly(life, str(refusal))
            raise
        finally:
            self._life = None
            life.close()
        life.leave(reason, self._unsent_report)
        self._say(f"left: {reason}")
        return True

    def _leave_quietly(self, life, reason):
        try:
            life.leave(reason, None)
        except grpc.RpcError:
            pass

    def _register(self):
        layout = model.Layout(
            tensors=[
                model.TensorSpec(name=name, shape=shape, block=block)
                for block, (name, shape) in enumerate(self._task.tensors)
            ]
        )
        request = cluster.RegisterRequest(
            wire_version=WIRE_VERSION,
            software_version="Python example",
            name=self._name,
            instance_id=self._instance_id,
            device="Python",
            layout=layout,
        )
        return self._coordinator.Register(request, timeout=CALL_SECONDS)

    def _take_part(self, life, needs_initial_weights):
        if needs_initial_weights:
            weights = self._task.initial_weights()
            kind = parameters.CONTRIBUTION_KIND_INITIAL_WEIGHTS
            self._until_it_works(life, lambda: life.push(weights, kind=kind))
        life.join(self._task)
        self._say(f"joined {job.Mode.Name(life.job.mode)} at {self._address}")

    def _until_it_works(self, life, transfer):
        """The same transfer again while nothing says that it cannot work in this life."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return transfer()
            except grpc.RpcError as error:
                is_over = error.code() == grpc.StatusCode.ABORTED or is_unknown_call(error)
                if is_over or is_final(error):
                    raise
                text = describe(error)
            except Damaged as error:
                text = describe(error)
            self._say(f"transfer failed ({text}); trying again", topic="transfer failed")
            life.pause(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _next_grant(self, life):
        self._is_waiting = True
        try:
            if self._stop.is_set():
                raise Interrupted(TOLD_TO_STOP)
            life.activity = "wait"
            grant = life.next_grant(self._unsent_report)
        finally:
            self._is_waiting = False
        self._unsent_report = None  # the coordinator has it
        return grant

    def _carry_out_grants(self, life):
        """Returns why it ended."""
        while True:
            grant = self._next_grant(life)
            if grant.kind == cluster.Grant.KIND_DONE:
                if grant.has_failed:
                    raise Refused(f"the job has failed: {grant.reason}")
                return grant.reason
            if grant.kind == cluster.Grant.KIND_WAIT:
                self._say(f"waiting: {grant.reason}")
                continue
            self._unsent_report = self._carry_out(life, grant)
            self._pause_seconds = FIRST_PAUSE_SECONDS

    def _carry_out(self, life, grant):
        self._show(grant)
        life.activity = "pull"
        weights, versions = self._until_it_works(life, lambda: life.pull(grant.min_round))
        life.activity = "compute"
        report = cluster.RoundReport(round=grant.round, base_version=versions[0])
        started = time.monotonic()
        self._evaluate(grant, weights, report)
        if grant.kind == cluster.Grant.KIND_TRAIN:
            elements, header = self._train(life.job, grant, weights, report)
            report.compute_seconds = time.monotonic() - started
            header.update(round=grant.round, versions=versions, num_samples=report.num_samples)
            life.activity = "push"
            self._until_it_works(life, lambda: life.push(elements, **header))
        return report

    def _show(self, grant):
        """The job's loss, over all workers, as the server tells it with a grant."""
        if grant.round % max(1, grant.total_rounds // 10) == 0 and grant.loss.HasField("train"):
            loss = grant.loss
            self._say(f"round {loss.train_round}/{grant.total_rounds}  loss {loss.train:.4f} nats")

    def _evaluate(self, grant, weights, report):
        first, count = grant.first_heldout_sample, grant.num_heldout_samples
        if count == 0:
            return
        total, size = self._task.num_heldout_samples, grant.evaluation_set_size
        samples = [k * total // size for k in range(first, first + count)]
        loss_sum, correct = self._task.evaluate(weights, samples)
        report.heldout_loss_sum = loss_sum
        report.heldout_correct = correct
        report.heldout_predictions = count

    def _gradient(self, spec, first, count, weights, report):
        num_samples = self._task.num_train_samples
        samples = [sample_at(spec.seed, num_samples, first + i) for i in range(count)]
        gradient, loss_sum = self._task.gradient(weights, samples)
        report.loss_sum += loss_sum
        report.num_samples += count
        report.num_predictions += count
        return gradient

    def _train(self, spec, grant, weights, report):
        """Returns what to contribute and how to send it."""
        if spec.mode == job.MODE_LOCAL_SGD:
            return self._train_locally(spec, grant, weights, report)
        gradient = self._gradient(spec, grant.first_sample, grant.num_samples, weights, report)
        header = {"kind": parameters.CONTRIBUTION_KIND_GRADIENT}
        if spec.mode == job.MODE_ASYNC and spec.max_rounds_ahead != 0:
            # A gradient that is applied alone; a mean of several is clipped by the servers.
            header["scale"] = clip_scale(gradient, spec.clip_norm)
        return gradient, header

    def _train_locally(self, spec, grant, weights, report):
        if spec.optimizer.kind != job.OPTIMIZER_KIND_SGD:
            raise Refused("in local_sgd this example can only make sgd steps; start ps_server with --optimizer=sgd")
        start = weights[:]
        steps = grant.local_steps
        for step in range(steps):
            begin = grant.num_samples * step // steps
            end = grant.num_samples * (step + 1) // steps
            gradient = self._gradient(
                spec, grant.first_sample + begin, end - begin, weights, report
            )
            rate = grant.learning_rates[step] * clip_scale(gradient, spec.clip_norm)
            weights = array.array("f", (w - rate * g for w, g in zip(weights, gradient)))
        if spec.outer_optimizer == job.OUTER_OPTIMIZER_KIND_AVERAGE:
            return weights, {"kind": parameters.CONTRIBUTION_KIND_WEIGHTS}
        difference = array.array("f", (a - b for a, b in zip(start, weights)))
        return difference, {"kind": parameters.CONTRIBUTION_KIND_PSEUDO_GRADIENT}


def clip_scale(gradient, limit):
    """What the gradient is multiplied by so that its norm is at most `limit`; 0: no limit."""
    norm = math.sqrt(sum(g * g for g in gradient))
    return limit / norm if 0 < limit < norm else 1.0


def is_final(error):
    """Servers name the cause of a refusal; one without a text was damaged on its way."""
    return isinstance(error, grpc.RpcError) and error.code() in FINAL_CODES and error.details()


def is_unknown_call(error):
    return isinstance(error, grpc.RpcError) and error.code() in UNKNOWN_CODES


def describe(error):
    if isinstance(error, grpc.RpcError):
        return f"{error.code().name}: {error.details()}"
    return str(error)
