// ResidualRecord: what lies beside a kept residual and says what it is of, as text in its file; and
// whether it is of what a worker goes on with. Pure: no file, clock or server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/messages/cluster_messages.h"
#include "common/params/encoding.h"
#include "worker/client/bulk_transport.h"

namespace lodestar::trainer {

// Describes the last contribution that was made. The record does not say whether it counts: the
// servers know.
struct ResidualRecord {
  std::string worker_name;
  std::string layout_hash;
  // The value of --push_encoding. Averaged tensors have another encoding.
  Encoding encoding = Encoding::kFp32;
  uint64_t server_incarnation = 0;
  WorkerLife life;
  std::string life_secret;
  client::ContributionHeader header;
  std::vector<Bucket> buckets;
  std::vector<Version> base_versions;  // by bucket
  std::vector<int64_t> bucket_bytes;   // The bytes of each bucket, as they travel.
  RoundReport report;                  // The report of the contribution, without times and metrics.

  int64_t num_elements() const;
  int64_t contribution_bytes() const;
};

std::string FormatRecord(const ResidualRecord& record);
// Errors: InvalidArgument naming what is missing or cannot be.
absl::StatusOr<ResidualRecord> ParseRecord(absl::string_view text);

// Checks that the residual belongs to this worker, to the job that it has registered for, and to
// these servers. Checks also that it is cut as they cut the vector. Errors: FailedPrecondition
// naming what differs, there and here.
absl::Status CheckBelongs(const ResidualRecord& record, absl::string_view worker_name,
                          const Registration& registration);

}  // namespace lodestar::trainer
