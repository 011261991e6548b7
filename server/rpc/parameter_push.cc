// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/parameter_push.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/job/learning_rate_schedule.h"
#include "common/messages/contribution.h"
#include "common/params/encoding.h"
#include "common/runtime/status_macros.h"
#include "proto/bulk_options.h"
#include "proto/convert.h"
#include "proto/status_mapping.h"
#include "server/shard/staging_pool.h"

namespace lodestar::rpc {
namespace {

// Maximum rate of the other traffic on a push's connection, in bytes per second: heartbeats and
// pings. If no more bytes than that arrive, the push counts as silent.
constexpr double kOtherBytesPerSecond = 1024;
// Minimum size of a bucket that is copied without filling the CPU's caches. Such a bucket would
// have left the caches before it is added to the mean.
constexpr size_t kLongBucketBytes = 1 << 20;
// Maximum size of a message with a valid chunk: the largest payload, and 4 KiB. A header is never
// longer than 4 KiB.
constexpr size_t kLargestChunkMessage = wire::kMaxChunkBytes + (4 << 10);

std::string Describe(const wire::PushChunkHeader& header) {
  return absl::StrCat("push of worker ", header.worker.value(), ", round ", header.round.value(),
                      ", bucket ", header.bucket, ": ");
}

// Returns the encoding that the header names. If the job uses that kind of encoding, the result is
// the job's own encoding with its parameters.
absl::StatusOr<params::Encoding> EncodingOf(const wire::PushChunkHeader& header,
                                            params::Encoding of_job) {
  ASSIGN_OR_RETURN(const params::Encoding::Kind kind, wire::FromProto(header.encoding));
  if (of_job.kind() == kind) return of_job;
  return *std::find_if(std::begin(params::kAllEncodings), std::end(params::kAllEncodings),
                       [kind](params::Encoding encoding) { return encoding.kind() == kind; });
}

absl::StatusOr<shard::ContributionKey> KeyOf(const wire::PushChunkHeader& header,
                                             params::Encoding of_job) {
  const auto refuse = [&header](auto... text) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(header), text...));
  };
  if (header.worker == WorkerId() || header.incarnation == Incarnation()) {
    return refuse(
        "worker_id and incarnation are missing; use the values in the reply to the registration");
  }
  if (header.round < Round() || header.base_version < Version()) {
    return refuse("round and base_version must not be negative, but base_version is ",
                  header.base_version.value());
  }
  if (!(header.scale >= 0 && header.scale <= messages::kMaxContributionScale)) {
    return refuse("scale is ", header.scale, "; it must be above 0 and at most ",
                  messages::kMaxContributionScale);
  }
  if (header.num_samples < 0 && header.num_samples != messages::kSkippedSamples) {
    return refuse("num_samples is ", header.num_samples, "; it must be at least 0, or ",
                  messages::kSkippedSamples, " for a skipped step");
  }
  if (header.learning_rate.has_value() &&
      !(*header.learning_rate >= 0 && *header.learning_rate <= job::kMaxLearningRate)) {
    return refuse("learning_rate is ", *header.learning_rate, ", wanted is 0 to ",
                  job::kMaxLearningRate);
  }
  if (header.weight.has_value() &&
      !(*header.weight >= 0 && *header.weight <= messages::kMaxContributionWeight)) {
    return refuse("weight is ", *header.weight, "; it must be 0 to ",
                  messages::kMaxContributionWeight);
  }
  absl::StatusOr<params::Encoding> encoding = EncodingOf(header, of_job);
  if (!encoding.ok()) return refuse(encoding.status().message());
  absl::StatusOr<messages::ContributionKind> kind = wire::FromProto(header.kind);
  if (!kind.ok()) return refuse(kind.status().message());
  return shard::ContributionKey{header.worker,
                                header.incarnation,
                                header.round,
                                header.base_version,
                                *kind,
                                header.scale == 0 ? 1.0f : header.scale,
                                *encoding,
                                header.num_samples,
                                header.learning_rate,
                                header.weight,
                                header.state_vector};
}

// Returns true if two chunks belong to the same bucket of the same contribution.
bool IsSameBucket(wire::PushChunkHeader a, const wire::PushChunkHeader& b) {
  a.offset = b.offset;
  a.crc32c = b.crc32c;
  a.place = b.place;
  return a == b;
}

}  // namespace

grpc::ServerReadReactor<grpc::ByteBuffer>* PushStream::Start(
    absl::StatusOr<std::shared_ptr<shard::ParameterShard>> shard,
    std::shared_ptr<TrafficCounters> traffic, std::shared_ptr<SharedMemoryRegions> regions,
    std::shared_ptr<BulkCall> call, StreamGuard guard, grpc::ByteBuffer* reply) {
  std::shared_ptr<PushStream> stream(new PushStream(std::move(traffic), std::move(regions),
                                                    std::move(call), std::move(guard), reply));
  stream->self_ = stream;
  stream->guard_.watch->Add(std::weak_ptr<WatchedStream>(stream));
  if (!shard.ok()) {
    stream->Fail(shard.status());
  } else {
    stream->shard_ = *std::move(shard);
    if (absl::Status status = stream->TakeSeat(messages::WorkerLife()); !status.ok()) {
      stream->Fail(status);
    } else {
      stream->ReadNext();
    }
  }
  return stream.get();
}

PushStream::PushStream(std::shared_ptr<TrafficCounters> traffic,
                       std::shared_ptr<SharedMemoryRegions> regions, std::shared_ptr<BulkCall> call,
                       StreamGuard guard, grpc::ByteBuffer* reply)
    : traffic_(std::move(traffic)),
      regions_(std::move(regions)),
      call_(std::move(call)),
      guard_(std::move(guard)),
      reply_(reply) {}

absl::Status PushStream::TakeSeat(const messages::WorkerLife& life) {
  caller_ = shard_->IsAnnounced(life.worker, life.incarnation) ? StreamQuota::Caller::kMember
                                                               : StreamQuota::Caller::kStranger;
  if (seat_ != nullptr && seat_->IsFor(life.worker, caller_)) return absl::OkStatus();
  if (caller_ == StreamQuota::Caller::kMember) {
    strangers_place_.reset();
  } else if (strangers_place_ == nullptr) {
    ASSIGN_OR_RETURN(strangers_place_, guard_.TakeStrangersPlace());
  }
  absl::StatusOr<std::unique_ptr<StreamQuota::Seat>> seat =
      guard_.quota->Take(life.worker, caller_);
  if (!seat.ok()) guard_.refusals->Count(limits::LimitReached::kStreams);
  ASSIGN_OR_RETURN(seat_, std::move(seat));
  return absl::OkStatus();
}

absl::Status PushStream::ReadHeader() {
  reader_.emplace(message_);
  RETURN_IF_ERROR(reader_->ReadHeader());
  const wire::PushChunkHeader& header = reader_->header();
  if (gives_checksums_ && !reader_->has_header_checksum()) {
    return absl::DataLossError(
        absl::StrCat(Describe(header),
                     "the header has no checksum, although earlier headers on this stream had one, "
                     "so it was damaged on its way; send the round again"));
  }
  gives_checksums_ = reader_->has_header_checksum();
  if (!reader_->is_shared()) return absl::OkStatus();
  ASSIGN_OR_RETURN(shared_, regions_->Find(header.place.region, header.worker));
  return absl::OkStatus();
}

void PushStream::OnReadDone(bool ok) {
  call_->set_phase(v1::CallState::PHASE_HELD);
  StopAwaitingPeer();
  if (!ok) return OnClientDone();
  if (message_.Length() > kLargestChunkMessage)
    guard_.refusals->Count(limits::LimitReached::kMessages);
  if (absl::Status status = ReadHeader(); !status.ok()) return Fail(status);
  if (incoming_.has_value()) {
    TakeChunk();
  } else {
    BeginBucket();
  }
}

void PushStream::BeginBucket() {
  const wire::PushChunkHeader& header = reader_->header();
  const absl::StatusOr<shard::ContributionKey> key = KeyOf(header, shard_->push_encoding());
  if (!key.ok()) return Fail(key.status());
  if (header.offset != 0) {
    return Fail(
        BrokenOrder(header, "the first chunk is at element ", header.offset,
                    ", but must be at 0; send the chunks of a bucket in order on one stream"));
  }
  const messages::WorkerLife life{key->worker, key->incarnation};
  if (life != speaker_) {
    if (absl::Status status = guard_.CheckLife(*shard_, life); !status.ok()) return Fail(status);
    speaker_ = life;
  }
  if (absl::Status status = TakeSeat(life); !status.ok()) return Fail(status);
  uint64_t ordinal;
  {
    absl::MutexLock lock(&mutex_);
    ordinal = ++num_begun_;
    begun_at_ = guard_.clock->Now();
  }
  shard::PendingCall call = shard_->BeginBucket(
      *key, header.bucket, [self = shared_from_this()](absl::StatusOr<shard::StagedBucket> staged) {
        self->OnSpace(std::move(staged));
      });
  absl::MutexLock lock(&mutex_);
  // OnSpace() may have run before this line, and the next bucket may have begun. If so, `waiting_`
  // already belongs to that next bucket.
  if (num_begun_ == ordinal) waiting_ = call;
  if (finished_) call.Cancel();
}

void PushStream::OnSpace(absl::StatusOr<shard::StagedBucket> staged) {
  if (!staged.ok()) return Fail(staged.status());
  {
    absl::MutexLock lock(&mutex_);
    held_until_ = guard_.clock->Now();
    held_ += held_until_ - begun_at_;
    silence_ = staged->silence();
    silent_for_ = absl::ZeroDuration();
  }
  incoming_ = Incoming{.staged = *std::move(staged), .first = reader_->header()};
  if (!incoming_->staged.key().is_skipped()) return TakeChunk();
  reader_.reset();
  HandOver();
  ReadNext();
}

void PushStream::TakeChunk() {
  const absl::Status copied = CopyChunk();
  // Gives gRPC its memory back before the next chunk needs memory.
  reader_.reset();
  if (!copied.ok()) return Fail(copied);
  if (incoming_->received == incoming_->staged.num_elements()) HandOver();
  ReadNext();
}

template <typename... Text>
absl::Status PushStream::BrokenOrder(const wire::PushChunkHeader& header,
                                     const Text&... text) const {
  if (!gives_checksums_) return absl::InvalidArgumentError(absl::StrCat(Describe(header), text...));
  return absl::DataLossError(absl::StrCat(
      Describe(header), text...,
      ". If the program did that, a chunk was lost on its way, and the program must send the "
      "contribution again"));
}

absl::Status PushStream::CheckContinues() const {
  const wire::PushChunkHeader& header = reader_->header();
  const auto refuse = [&](auto... text) { return BrokenOrder(header, text...); };
  if (!IsSameBucket(header, incoming_->first)) {
    return refuse("a chunk of another bucket or contribution came after ", incoming_->received,
                  " of ", incoming_->staged.num_elements(), " elements of bucket ",
                  incoming_->first.bucket, "; finish one bucket before the next");
  }
  if (header.offset != static_cast<uint64_t>(incoming_->received)) {
    return refuse("a chunk begins at element ", header.offset, ", but must begin at ",
                  incoming_->received, "; send the chunks of a bucket in order and without gaps");
  }
  const params::Encoding encoding = incoming_->staged.key().encoding;
  const int64_t room = incoming_->staged.num_elements() - incoming_->received;
  if (params::ElementsIn(encoding, static_cast<int64_t>(reader_->data_bytes()), room) < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(header), "chunk of ", reader_->data_bytes(), " bytes at element ", header.offset,
        "; it must have whole ", params::EncodingText(encoding), " elements in blocks of ",
        params::BlockElements(encoding), ", and at most ", room,
        ". The program may use another layout than the job; compare their layout hashes"));
  }
  return absl::OkStatus();
}

// Returns an error if the shard took back the space of this bucket because the worker's incarnation
// is over. Without the check, an evicted worker could keep the memory by sending slowly.
absl::Status PushStream::CheckKeepsSpace() const {
  if (!incoming_->staged.is_revoked()) return absl::OkStatus();
  const shard::ContributionKey& key = incoming_->staged.key();
  absl::Status refusal = shard_->RefusalFor(
      key.worker, key.incarnation,
      absl::UnavailableError("other workers use the memory for contributions that this "
                             "contribution needs; the worker sends the contribution again"));
  // If the incarnation is not over, the worker sends the same contribution again on another stream.
  // Then this stream may go on, but the shard does not count its bucket.
  return absl::IsAborted(refusal) ? refusal : absl::OkStatus();
}

absl::Status PushStream::CopyChunk() {
  RETURN_IF_ERROR(CheckContinues());
  RETURN_IF_ERROR(CheckKeepsSpace());
  const params::Encoding encoding = incoming_->staged.key().encoding;
  const int64_t begin = incoming_->received;
  const int64_t end =
      begin + params::ElementsIn(encoding, static_cast<int64_t>(reader_->data_bytes()),
                                 incoming_->staged.num_elements() - begin);
  if (!incoming_->staged.is_discard()) {
    const int64_t begin_bytes = params::EncodedBytes(encoding, begin);
    std::byte* const place = incoming_->staged.bytes().data() + begin_bytes;
    const auto look = [&](const wire::ArrivedBytes& arrived) {
      incoming_->staged.OnArrived(begin_bytes + static_cast<int64_t>(arrived.end), arrived.last);
    };
    // If the payload is in shared memory, the worker can still change it. So the checks read the
    // copy.
    const bool is_long = incoming_->staged.bytes().size() >= kLongBucketBytes;
    ASSIGN_OR_RETURN(
        const uint32_t seen,
        reader_->ReadData(
            place, shared_ == nullptr ? nullptr : &shared_->region(), look,
            is_long && shared_ == nullptr ? crc32c::CopyTo::kMemory : crc32c::CopyTo::kCaches));
    if (seen != reader_->header().crc32c) {
      return absl::DataLossError(
          absl::StrCat(Describe(reader_->header()), "elements ", begin, "..", end,
                       " arrived with crc32c ", absl::Hex(seen), ", but were sent with ",
                       absl::Hex(reader_->header().crc32c), "; send the round again"));
    }
  }
  if (shared_ != nullptr) {
    shared_->MarkRead(reader_->header().place.offset);
    shared_ = nullptr;
  }
  incoming_->received = end;
  traffic_->bytes_received.fetch_add(reader_->data_bytes(), std::memory_order_relaxed);
  call_->AddBytes(reader_->data_bytes());
  return absl::OkStatus();
}

void PushStream::HandOver() {
  {
    absl::MutexLock lock(&mutex_);
    ++num_uncounted_;
    silence_.reset();
  }
  shard::StagedBucket staged = std::move(incoming_->staged);
  incoming_.reset();
  const uint32_t bucket = staged.bucket();
  shard_->FinishBucket(std::move(staged), [self = shared_from_this(), bucket](
                                              const absl::StatusOr<shard::PushOutcome>& outcome) {
    self->OnCounted(bucket, outcome);
  });
}

void PushStream::OnCounted(uint32_t bucket, const absl::StatusOr<shard::PushOutcome>& outcome) {
  if (!outcome.ok()) return Fail(outcome.status());
  absl::MutexLock lock(&mutex_);
  switch (*outcome) {
    case shard::PushOutcome::kCounted:
      result_.set_buckets_counted(result_.buckets_counted() + 1);
      break;
    case shard::PushOutcome::kDuplicate:
      result_.set_buckets_duplicate(result_.buckets_duplicate() + 1);
      break;
    case shard::PushOutcome::kLate:
      result_.set_buckets_late(result_.buckets_late() + 1);
      result_.add_late_buckets(bucket);
      break;
  }
  --num_uncounted_;
  if (client_done_ && num_uncounted_ == 0) FinishLocked(absl::OkStatus());
}

void PushStream::OnClientDone() {
  if (incoming_.has_value()) {
    return Fail(BrokenOrder(incoming_->first, "the stream ended after ", incoming_->received,
                            " of ", incoming_->staged.num_elements(),
                            " elements; send whole buckets"));
  }
  absl::MutexLock lock(&mutex_);
  client_done_ = true;
  received_at_ = guard_.clock->Now();
  if (num_uncounted_ == 0) FinishLocked(absl::OkStatus());
}

// Updates the time for which the push is silent. A push is not silent while its connection receives
// bytes, even if a single message takes long.
void PushStream::OnLook(absl::Duration awaited) {
  {
    absl::MutexLock lock(&mutex_);
    if (silence_ == nullptr) return;
  }
  const std::optional<uint64_t> bytes =
      guard_.connection_bytes == nullptr ? std::nullopt : guard_.connection_bytes();
  absl::MutexLock lock(&mutex_);
  if (silence_ == nullptr) return;
  silent_for_ += awaited;
  const double others = kOtherBytesPerSecond * (1 + absl::ToDoubleSeconds(silent_for_));
  const uint64_t received = bytes.value_or(0);
  // If the connection's bytes are not counted, the push never counts as silent.
  const bool has_come =
      !bytes.has_value() || static_cast<double>(received - silent_from_bytes_) > others;
  if (awaited == absl::ZeroDuration() || has_come) {
    silent_for_ = absl::ZeroDuration();
    silent_from_bytes_ = received;
  }
  silence_->Set(silent_for_);
}

void PushStream::OnCancel() { Fail(absl::CancelledError("the client is gone")); }

void PushStream::OnDone() {
  call_->End();
  strangers_place_.reset();
  seat_.reset();
  self_.reset();
}

void PushStream::ReadNext() {
  call_->set_phase(v1::CallState::PHASE_RECEIVING);
  // A member may pause between two buckets, because it computes the next one. Within a bucket it
  // must send, because other workers wait for the space of that bucket. A caller that is not known
  // as a member may never pause.
  const bool is_known = caller_ == StreamQuota::Caller::kMember;
  if (incoming_.has_value() || !is_known) AwaitPeer();
  absl::MutexLock lock(&mutex_);
  if (!finished_) StartRead(&message_);
}

void PushStream::Fail(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  FinishLocked(status);
  waiting_.Cancel();
}

void PushStream::FinishLocked(const absl::Status& status) {
  if (finished_) return;
  finished_ = true;
  grpc::Status answer = wire::ToGrpcStatus(status);
  if (status.ok()) {
    result_.set_duplicate(result_.buckets_counted() == 0 && result_.buckets_late() == 0 &&
                          result_.buckets_duplicate() > 0);
    const absl::Time now = guard_.clock->Now();
    result_.set_held_seconds(static_cast<float>(absl::ToDoubleSeconds(held_)));
    result_.set_seconds_since_held(static_cast<float>(absl::ToDoubleSeconds(now - held_until_)));
    result_.set_seconds_since_received(
        static_cast<float>(absl::ToDoubleSeconds(now - received_at_)));
    bool own_buffer = false;
    answer = grpc::SerializationTraits<v1::PushReply>::Serialize(result_, reply_, &own_buffer);
  }
  Finish(answer);
}

}  // namespace lodestar::rpc
