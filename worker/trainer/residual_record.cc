#include "worker/trainer/residual_record.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/json.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr int kVersion = 1;

// Whether it can be one.
absl::Status CheckRecord(const ResidualRecord& record) {
  const size_t num_buckets = record.buckets.size();
  if (record.base_versions.size() != num_buckets || record.bucket_bytes.size() != num_buckets) {
    return absl::InvalidArgumentError(absl::StrCat(num_buckets, " buckets, ",
                                                   record.base_versions.size(), " versions, ",
                                                   record.bucket_bytes.size(), " sizes"));
  }
  int64_t begin = 0;
  for (size_t i = 0; i < num_buckets; ++i) {
    const ElementRange range = record.buckets[i].range;
    // Where numbers are added up below, none is beyond what a vector may have.
    constexpr int64_t kMostElements = int64_t{1} << 48;
    if (range.begin != begin || range.end <= begin || range.end > kMostElements) {
      return absl::InvalidArgumentError(absl::StrCat("bucket ", i, " is elements ", range.begin,
                                                     "..", range.end, ", expected from ", begin));
    }
    if (record.bucket_bytes[i] < 0 ||
        record.bucket_bytes[i] > EncodedBytes(Encoding::kFp32, range.size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bucket ", i, " of ", range.size(), " elements has ", record.bucket_bytes[i], " bytes"));
    }
    begin = range.end;
  }
  return absl::OkStatus();
}

absl::StatusOr<Bucket> BucketFrom(const Json& row, uint32_t index) {
  Bucket bucket;
  bucket.index = index;
  ASSIGN_OR_RETURN(const int64_t shard, GetInt64(row, "shard"));
  ASSIGN_OR_RETURN(const int64_t block, GetInt64(row, "block"));
  bucket.shard = static_cast<int>(shard);
  bucket.block = static_cast<int>(block);
  ASSIGN_OR_RETURN(bucket.range.begin, GetInt64(row, "begin"));
  ASSIGN_OR_RETURN(bucket.range.end, GetInt64(row, "end"));
  return bucket;
}

// JSON has no NaN, and a loss may be one.
absl::StatusOr<double> GetBits(const Json& object, absl::string_view key) {
  ASSIGN_OR_RETURN(const uint64_t bits, GetUint64(object, key));
  return std::bit_cast<double>(bits);
}

Json ToJson(const RoundReport& report) {
  Json json;
  json["loss_sum_bits"] = std::bit_cast<uint64_t>(report.loss_sum);
  json["num_predictions"] = report.num_predictions;
  json["num_samples"] = report.num_samples;
  json["heldout_loss_sum_bits"] = std::bit_cast<uint64_t>(report.heldout_loss_sum);
  json["heldout_correct"] = report.heldout_correct;
  json["heldout_predictions"] = report.heldout_predictions;
  json["base_version"] = report.base_version.value();
  return json;
}

absl::StatusOr<RoundReport> ReportFrom(const Json& json) {
  RoundReport report;
  ASSIGN_OR_RETURN(report.loss_sum, GetBits(json, "loss_sum_bits"));
  ASSIGN_OR_RETURN(report.num_predictions, GetInt64(json, "num_predictions"));
  ASSIGN_OR_RETURN(report.num_samples, GetInt64(json, "num_samples"));
  ASSIGN_OR_RETURN(report.heldout_loss_sum, GetBits(json, "heldout_loss_sum_bits"));
  ASSIGN_OR_RETURN(report.heldout_correct, GetInt64(json, "heldout_correct"));
  ASSIGN_OR_RETURN(report.heldout_predictions, GetInt64(json, "heldout_predictions"));
  ASSIGN_OR_RETURN(const int64_t base_version, GetInt64(json, "base_version"));
  report.base_version = Version(base_version);
  return report;
}

absl::StatusOr<ContributionKind> KindFrom(absl::string_view name) {
  for (const ContributionKind kind :
       {ContributionKind::kGradient, ContributionKind::kPseudoGradient}) {
    if (ContributionKindName(kind) == name) return kind;
  }
  return absl::InvalidArgumentError(absl::StrCat("kind '", name, "'"));
}

}  // namespace

int64_t ResidualRecord::num_elements() const {
  return buckets.empty() ? 0 : buckets.back().range.end;
}

int64_t ResidualRecord::contribution_bytes() const {
  return std::accumulate(bucket_bytes.begin(), bucket_bytes.end(), int64_t{0});
}

std::string FormatRecord(const ResidualRecord& record) {
  Json json;
  json["version"] = kVersion;
  json["name"] = record.worker_name;
  json["layout"] = record.layout_hash;
  json["encoding"] = EncodingText(record.encoding);
  json["server_incarnation"] = record.server_incarnation;
  json["worker"] = record.life.worker.value();
  json["incarnation"] = record.life.incarnation.value();
  json["life_secret"] = record.life_secret;
  json["round"] = record.header.round.value();
  json["kind"] = std::string(ContributionKindName(record.header.kind));
  json["scale_bits"] = std::bit_cast<uint32_t>(record.header.scale);
  json["num_samples"] = record.header.num_samples;
  Json buckets = Json::array();
  for (size_t i = 0; i < record.buckets.size(); ++i) {
    const Bucket& bucket = record.buckets[i];
    Json row;
    row["shard"] = bucket.shard;
    row["block"] = bucket.block;
    row["begin"] = bucket.range.begin;
    row["end"] = bucket.range.end;
    row["base_version"] = record.base_versions[i].value();
    row["bytes"] = record.bucket_bytes[i];
    buckets.push_back(std::move(row));
  }
  json["buckets"] = std::move(buckets);
  json["report"] = ToJson(record.report);
  return FormatJson(json);
}

absl::StatusOr<ResidualRecord> ParseRecord(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  ASSIGN_OR_RETURN(const int64_t version, GetInt64(json, "version"));
  if (version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("it is of version ", version, ", this program reads ", kVersion));
  }
  ResidualRecord record;
  ASSIGN_OR_RETURN(record.worker_name, GetString(json, "name"));
  ASSIGN_OR_RETURN(record.layout_hash, GetString(json, "layout"));
  ASSIGN_OR_RETURN(const std::string encoding, GetString(json, "encoding"));
  ASSIGN_OR_RETURN(record.encoding, ParseEncodingText("encoding", encoding));
  ASSIGN_OR_RETURN(record.server_incarnation, GetUint64(json, "server_incarnation"));
  ASSIGN_OR_RETURN(const uint64_t worker, GetUint64(json, "worker"));
  ASSIGN_OR_RETURN(const uint64_t incarnation, GetUint64(json, "incarnation"));
  record.life = {WorkerId(static_cast<uint32_t>(worker)), Incarnation(incarnation)};
  ASSIGN_OR_RETURN(record.life_secret, GetString(json, "life_secret"));
  ASSIGN_OR_RETURN(const int64_t round, GetInt64(json, "round"));
  record.header.round = Round(round);
  ASSIGN_OR_RETURN(const std::string kind, GetString(json, "kind"));
  ASSIGN_OR_RETURN(record.header.kind, KindFrom(kind));
  ASSIGN_OR_RETURN(const uint64_t scale, GetUint64(json, "scale_bits"));
  record.header.scale = std::bit_cast<float>(static_cast<uint32_t>(scale));
  record.header.encoding = record.encoding;
  ASSIGN_OR_RETURN(record.header.num_samples, GetInt64(json, "num_samples"));
  ASSIGN_OR_RETURN(const Json* const buckets, GetArray(json, "buckets"));
  for (const Json& row : *buckets) {
    ASSIGN_OR_RETURN(const Bucket bucket,
                     BucketFrom(row, static_cast<uint32_t>(record.buckets.size())));
    ASSIGN_OR_RETURN(const int64_t base_version, GetInt64(row, "base_version"));
    ASSIGN_OR_RETURN(const int64_t bytes, GetInt64(row, "bytes"));
    record.buckets.push_back(bucket);
    record.base_versions.push_back(Version(base_version));
    record.bucket_bytes.push_back(bytes);
  }
  RETURN_IF_ERROR(CheckRecord(record));
  ASSIGN_OR_RETURN(const Json* const report, GetObject(json, "report"));
  ASSIGN_OR_RETURN(record.report, ReportFrom(*report));
  record.report.round = record.header.round;
  return record;
}

absl::Status CheckBelongs(const ResidualRecord& record, absl::string_view worker_name,
                          const Registration& registration) {
  if (record.worker_name != worker_name) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is of worker '", record.worker_name, "', this is '", worker_name, "'"));
  }
  if (record.layout_hash != registration.layout().hash()) {
    return absl::FailedPreconditionError(absl::StrCat("it is of another job, with layout ",
                                                      record.layout_hash, "; this one has ",
                                                      registration.layout().hash()));
  }
  if (record.encoding != registration.job.push_encoding) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is of --push_encoding=", EncodingText(record.encoding), ", the job has ",
                     EncodingText(registration.job.push_encoding)));
  }
  if (record.server_incarnation != registration.server_incarnation) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it is of incarnation ", record.server_incarnation, " of the servers, they are now ",
        registration.server_incarnation,
        ": they have begun anew from a checkpoint, which need not have the rounds that "
        "it is of, or with another job"));
  }
  // Servers whose disks have gone back go on with the same incarnation.
  const bool is_later =
      registration.next_round > Round(0) && record.header.round >= registration.next_round;
  if (is_later || record.life.incarnation > registration.life.incarnation) {
    return absl::FailedPreconditionError(absl::StrCat(
        "it is of round ", record.header.round.value(), " in life ",
        record.life.incarnation.value(), ", and the servers are at round ",
        registration.next_round.value(), " and have begun life ",
        registration.life.incarnation.value(), " for this worker: they have gone back"));
  }
  const bool is_cut_alike =
      std::equal(record.buckets.begin(), record.buckets.end(), registration.buckets().begin(),
                 registration.buckets().end(), [](const Bucket& a, const Bucket& b) {
                   return a.shard == b.shard && a.block == b.block &&
                          a.range.begin == b.range.begin && a.range.end == b.range.end;
                 });
  if (!is_cut_alike) {
    return absl::FailedPreconditionError(
        absl::StrCat("its ", record.buckets.size(), " buckets are not the ",
                     registration.buckets().size(), " of the servers"));
  }
  return absl::OkStatus();
}

}  // namespace lodestar
