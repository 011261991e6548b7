// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/residual_keeper.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/fragment_plan.h"
#include "common/logging/logging.h"
#include "common/runtime/remedy.h"
#include "common/runtime/status_macros.h"
#include "worker/trainer/retry.h"

namespace lodestar::trainer {
namespace {

// The bytes of a stored contribution, for another push. late() returns the buckets that the servers
// have not counted.
class StoredContribution final : public ContributionBytes {
 public:
  explicit StoredContribution(const ResidualStore::Stored& stored) : stored_(stored) {}

  params::Encoding encoding() const override { return stored_.record.encoding; }
  bool is_inline() const override { return true; }
  void Begin(const messages::Registration&, Round, float) override {}
  kernels::EventId Prepare(const params::Bucket&) override { return 0; }
  absl::Status Await(kernels::EventId) override { return absl::OkStatus(); }
  absl::Span<const std::byte> Of(const params::Bucket& bucket) const override {
    return stored_.Of(bucket.index);
  }
  void Commit(absl::Span<const uint32_t> late) override { late_.assign(late.begin(), late.end()); }

  const std::vector<uint32_t>& late() const { return late_; }

 private:
  const ResidualStore::Stored& stored_;
  std::vector<uint32_t> late_;
};

// Returns true if a call that failed with `status` may succeed in another life or over another
// connection.
bool MayGoBetter(const absl::Status& status) {
  const Remedy remedy = RemedyFor(status);
  return remedy == Remedy::kRejoin || remedy == Remedy::kReconnect || absl::IsCancelled(status);
}

}  // namespace

absl::StatusOr<std::optional<messages::RoundReport>> ResidualKeeper::Settle(const LifeContext& life,
                                                                            Round round) {
  if (is_settled_) return std::nullopt;
  const absl::StatusOr<ResidualStore::Stored> stored = store_->Load();
  absl::Status usable = stored.status();
  if (usable.ok()) {
    usable = CheckBelongs(stored->record, store_->worker_name(), *life.registration);
  }
  std::optional<messages::RoundReport> delivered;
  if (usable.ok()) {
    absl::StatusOr<std::optional<messages::RoundReport>> taken = TakeUp(life, round, *stored);
    if (MayGoBetter(taken.status())) return taken.status();
    usable = taken.status();
    if (taken.ok()) delivered = *std::move(taken);
  }
  if (!usable.ok() && !absl::IsNotFound(usable)) {
    logging::LogWarn("the residual in {} is not used: {}", store_->path(), usable.message());
  }
  has_residual_ = has_residual_ || usable.ok();
  is_settled_ = true;
  return delivered;
}

absl::StatusOr<std::optional<messages::RoundReport>> ResidualKeeper::TakeUp(
    const LifeContext& life, Round round, const ResidualStore::Stored& stored) {
  const ResidualRecord& record = stored.record;
  ASSIGN_OR_RETURN(const std::vector<bool> counted, AskWhatCounted(life, stored));
  std::vector<float> residual = stored.before;
  int num_counted = 0;
  for (const params::Bucket& bucket : record.buckets) {
    if (!counted[bucket.index]) continue;
    ++num_counted;
    std::copy(stored.after.begin() + bucket.range.begin, stored.after.begin() + bucket.range.end,
              residual.begin() + bucket.range.begin);
  }
  RETURN_IF_ERROR(residual_->SetResidual(record.server_incarnation, residual));
  logging::LogInfo(
      "this worker continues with the residual of round {}; the servers have counted {} of {} "
      "buckets of that contribution{}",
      record.header.round, num_counted, record.buckets.size(),
      job::DefersContributions(life.registration->job)
          ? "; the local steps since the last exchange of each fragment are lost"
          : "");
  const bool is_of_this_life = record.life == life.registration->life;
  if (!is_of_this_life || record.header.round != round) return std::nullopt;
  return record.report;
}

absl::StatusOr<std::vector<bool>> ResidualKeeper::AskWhatCounted(
    const LifeContext& life, const ResidualStore::Stored& stored) {
  const ResidualRecord& record = stored.record;
  const std::vector<uint32_t> sent =
      job::FragmentPlan(record.buckets, life.registration->job.fragments)
          .DueIn(record.header.round);
  std::vector<bool> counted(record.buckets.size(), false);
  if (record.life == life.registration->life) {
    StoredContribution bytes(stored);
    MadeContribution made = {
        .header = record.header, .bytes = &bytes, .buckets = sent, .base_versions = {}};
    for (const uint32_t bucket : sent) made.base_versions.push_back(record.base_versions[bucket]);
    RETURN_IF_ERROR(PushAgain(*life.registration, made, life.transport, clock_));
    for (const uint32_t bucket : sent) counted[bucket] = true;
    for (const uint32_t bucket : bytes.late()) counted[bucket] = false;
    return counted;
  }
  const std::shared_ptr<client::ParameterTransport> transport =
      life.transport_of(record.life, record.life_secret);
  for (const uint32_t bucket : sent) {
    ASSIGN_OR_RETURN(counted[bucket],
                     AskOfEndedLife(life, stored, record.buckets[bucket], transport.get()));
  }
  return counted;
}

absl::StatusOr<bool> ResidualKeeper::AskOfEndedLife(const LifeContext& life,
                                                    const ResidualStore::Stored& stored,
                                                    const params::Bucket& bucket,
                                                    client::ParameterTransport* transport) {
  const ResidualRecord& record = stored.record;
  TransferRetry retry(clock_);
  while (true) {
    ContributionSession session(*life.registration, record.header, transport);
    session.AddBucket(bucket, record.base_versions[bucket.index], stored.Of(bucket.index));
    const absl::StatusOr<client::PushResult> result = session.Finish();
    if (result.ok()) return result->late.empty();
    if (absl::IsAborted(result.status())) return false;
    RETURN_IF_ERROR(life.Check());
    if (!retry.MayHelp(result.status())) return result.status();
    retry.BackOff(result.status(), "asking the servers which contributions they counted");
  }
}

absl::Status ResidualKeeper::Keep(const messages::Registration& registration,
                                  const MadeContribution& made,
                                  const messages::RoundReport& report) {
  const bool is_skipped = made.header.num_samples == messages::kSkippedSamples;
  ASSIGN_OR_RETURN(const EncodedContribution::Foreseen foreseen,
                   residual_->Foresee(registration, is_skipped));
  has_residual_ = true;
  ResidualRecord record = {.worker_name = store_->worker_name(),
                           .layout_hash = registration.layout().hash(),
                           .encoding = registration.job.push_encoding,
                           .server_incarnation = registration.server_incarnation,
                           .life = registration.life,
                           .life_secret = registration.life_secret,
                           .header = made.header,
                           .buckets = registration.buckets(),
                           .base_versions = {},
                           .bucket_bytes = {},
                           .report = report};
  record.base_versions.resize(record.buckets.size());
  for (size_t i = 0; i < made.buckets.size(); ++i) {
    record.base_versions[made.buckets[i]] = made.base_versions[i];
  }
  std::vector<absl::Span<const std::byte>> contribution;
  for (const params::Bucket& bucket : registration.buckets()) {
    contribution.push_back(made.bytes->Of(bucket));
    record.bucket_bytes.push_back(static_cast<int64_t>(contribution.back().size()));
  }
  const absl::Status saved = store_->Save(record, foreseen.before, foreseen.after, contribution);
  if (saved.ok()) {
    logger_.Forget("save");
    return absl::OkStatus();
  }
  logger_.Log(
      logging::LogLevel::kWarn, "save",
      absl::StrCat("round ", made.header.round.value(),
                   ": the residual cannot be saved: ", saved.message(),
                   ". Training continues, but if this process ends now, its residual is lost"));
  // The file may still have an older residual, which a later process must not use.
  if (const absl::Status removed = store_->Remove(); !removed.ok()) {
    logging::LogError(
        "remove {} before this worker starts again, because it is outdated and could not be "
        "removed: {}",
        store_->path(), removed.message());
  }
  return absl::OkStatus();
}

void ResidualKeeper::Forget() {
  if (const absl::Status removed = store_->Remove(); !removed.ok()) {
    logging::LogWarn("the residual of a finished job could not be removed: {}", removed.message());
  }
}

}  // namespace lodestar::trainer
