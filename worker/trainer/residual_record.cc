// SPDX-License-Identifier: Apache-2.0

#include "worker/trainer/residual_record.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/archive/forms.h"
#include "common/archive/json_archive.h"
#include "common/messages/contribution.h"
#include "common/messages/contribution_forms.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"

namespace lodestar::trainer {
namespace {

constexpr int kVersion = 1;

// Checks that a worker could have written this record.
absl::Status CheckRecord(const ResidualRecord& record) {
  const messages::ContributionKind kind = record.header.kind;
  if (kind != messages::ContributionKind::kGradient &&
      kind != messages::ContributionKind::kPseudoGradient) {
    return absl::InvalidArgumentError(absl::StrCat("its kind is ",
                                                   messages::ContributionKindName(kind),
                                                   ", but only a gradient or pseudo_gradient "
                                                   "leaves a residual"));
  }
  const size_t num_buckets = record.buckets.size();
  if (record.base_versions.size() != num_buckets || record.bucket_bytes.size() != num_buckets) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it has ", num_buckets, " buckets, but ", record.base_versions.size(), " versions and ",
        record.bucket_bytes.size(), " sizes, which must be as many"));
  }
  int64_t begin = 0;
  for (size_t i = 0; i < num_buckets; ++i) {
    const params::ElementRange range = record.buckets[i].range;
    // No vector has more elements. The limit keeps the sums below from overflowing.
    constexpr int64_t kMostElements = int64_t{1} << 48;
    if (range.begin != begin || range.end <= begin || range.end > kMostElements) {
      return absl::InvalidArgumentError(absl::StrCat("bucket ", i, " has elements ", range.begin,
                                                     "..", range.end,
                                                     ", but must begin at element ", begin));
    }
    if (record.bucket_bytes[i] < 0 ||
        record.bucket_bytes[i] > params::EncodedBytes(params::Encoding::kFp32, range.size())) {
      return absl::InvalidArgumentError(absl::StrCat("bucket ", i, " of ", range.size(),
                                                     " elements has ", record.bucket_bytes[i],
                                                     " bytes, which do not fit"));
    }
    begin = range.end;
  }
  return absl::OkStatus();
}

// One bucket's entries in the vectors `buckets`, `base_versions` and `bucket_bytes` of the record.
struct BucketRow {
  params::Bucket bucket;
  Version base_version;
  int64_t num_bytes = 0;
  std::optional<double> learning_rate = {};
};

template <typename Archive>
void Describe(Archive& archive, BucketRow& row) {
  archive("shard", row.bucket.shard);
  archive("block", row.bucket.block);
  archive("begin", row.bucket.range.begin);
  archive("end", row.bucket.range.end);
  archive("base_version", row.base_version);
  archive("bytes", row.num_bytes);
  archive.Sparse("learning_rate", row.learning_rate);
}

std::vector<BucketRow> RowsOf(const ResidualRecord& record) {
  std::vector<BucketRow> rows;
  for (size_t i = 0; i < record.buckets.size(); ++i) {
    rows.push_back({record.buckets[i], record.base_versions[i], record.bucket_bytes[i]});
    const auto rate = record.header.learning_rates.find(record.buckets[i].block);
    if (rate != record.header.learning_rates.end()) rows.back().learning_rate = rate->second;
  }
  return rows;
}

void TakeRows(const std::vector<BucketRow>& rows, ResidualRecord& record) {
  for (const BucketRow& row : rows) {
    record.buckets.push_back(row.bucket);
    record.buckets.back().index = static_cast<uint32_t>(record.buckets.size() - 1);
    record.base_versions.push_back(row.base_version);
    record.bucket_bytes.push_back(row.num_bytes);
    if (row.learning_rate.has_value()) {
      record.header.learning_rates[row.bucket.block] = *row.learning_rate;
    }
  }
}

// Names the fields of the report in the file. Losses are stored as bits, because JSON has no NaN.
struct InFile {
  template <typename Archive>
  static void Fields(Archive& archive, messages::RoundReport& report) {
    archive("loss_sum_bits", archive::As<archive::BitsForm>(report.loss_sum));
    archive("num_predictions", report.num_predictions);
    archive("num_samples", report.num_samples);
    archive("heldout_loss_sum_bits", archive::As<archive::BitsForm>(report.heldout_loss_sum));
    archive("heldout_correct", report.heldout_correct);
    archive("heldout_predictions", report.heldout_predictions);
    archive("base_version", report.base_version);
  }

  template <typename Archive>
  static void Fields(Archive& archive, ResidualRecord& record) {
    archive.Note("version", kVersion);
    archive("name", record.worker_name);
    archive("layout", record.layout_hash);
    archive("encoding", archive::As<messages::EncodingForm>(record.encoding));
    archive("server_incarnation", record.server_incarnation);
    archive("worker", record.life.worker);
    archive("incarnation", record.life.incarnation);
    archive("life_secret", record.life_secret);
    archive("round", record.header.round);
    archive("kind", archive::As<messages::ContributionKindForm>(record.header.kind));
    archive("scale_bits", archive::As<archive::BitsForm>(record.header.scale));
    archive("num_samples", record.header.num_samples);
    archive.Sparse("weight", record.header.weight);
    std::vector<BucketRow> rows = RowsOf(record);
    archive("buckets", rows);
    if constexpr (Archive::kReads) TakeRows(rows, record);
    archive("report", archive::As<InFile>(record.report));
  }
};

}  // namespace

int64_t ResidualRecord::num_elements() const {
  return buckets.empty() ? 0 : buckets.back().range.end;
}

int64_t ResidualRecord::contribution_bytes() const {
  return std::accumulate(bucket_bytes.begin(), bucket_bytes.end(), int64_t{0});
}

std::string FormatRecord(const ResidualRecord& record) {
  return FormatJson(archive::RecordToJsonAs<InFile>(record));
}

absl::StatusOr<ResidualRecord> ParseRecord(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  ASSIGN_OR_RETURN(const int64_t version, GetInt64(json, "version"));
  if (version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("it has version ", version, ", but this program reads ", kVersion));
  }
  ResidualRecord record;
  RETURN_IF_ERROR(archive::ReadRecord(json, archive::As<InFile>(record)));
  record.header.encoding = record.encoding;
  record.report.round = record.header.round;
  RETURN_IF_ERROR(CheckRecord(record));
  return record;
}

absl::Status CheckBelongs(const ResidualRecord& record, absl::string_view worker_name,
                          const messages::Registration& registration) {
  if (record.worker_name != worker_name) {
    return absl::FailedPreconditionError(absl::StrCat("it is a residual of worker '",
                                                      record.worker_name, "', but this worker is '",
                                                      worker_name, "'"));
  }
  if (record.layout_hash != registration.layout().hash()) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is a residual of another job, with layout ", record.layout_hash,
                     ", but this job has layout ", registration.layout().hash()));
  }
  if (record.encoding != registration.job.push_encoding) {
    return absl::FailedPreconditionError(
        absl::StrCat("it was made with --push_encoding=", params::EncodingText(record.encoding),
                     ", but the job has ", params::EncodingText(registration.job.push_encoding)));
  }
  if (record.server_incarnation != registration.server_incarnation) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the servers have been started again since this residual was saved (their incarnation was ",
        record.server_incarnation, " and is now ", registration.server_incarnation,
        "). They may have another job, or a checkpoint without the rounds of this residual"));
  }
  // If the servers' disks were restored to an older state, the servers may have the same
  // incarnation as before. They have then not yet begun the round of the record.
  const bool is_later =
      registration.next_round > Round(0) && record.header.round >= registration.next_round;
  if (is_later || record.life.incarnation > registration.life.incarnation) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the servers have gone back to an older state: the residual is of round ",
        record.header.round.value(), " and incarnation ", record.life.incarnation.value(),
        " of this worker, but the servers are at round ", registration.next_round.value(),
        " and incarnation ", registration.life.incarnation.value()));
  }
  const bool is_cut_alike = std::equal(
      record.buckets.begin(), record.buckets.end(), registration.buckets().begin(),
      registration.buckets().end(), [](const params::Bucket& a, const params::Bucket& b) {
        return a.shard == b.shard && a.block == b.block && a.range.begin == b.range.begin &&
               a.range.end == b.range.end;
      });
  if (!is_cut_alike) {
    return absl::FailedPreconditionError(
        absl::StrCat("its ", record.buckets.size(), " buckets differ from the ",
                     registration.buckets().size(), " buckets of the servers"));
  }
  return absl::OkStatus();
}

}  // namespace lodestar::trainer
