// SPDX-License-Identifier: Apache-2.0

// ResidualRecord says which contribution a stored residual belongs to. It is stored as text in the
// file of the residual. CheckBelongs() decides whether a worker may use the residual. The code here
// uses no file, clock or server.
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

// Describes the last contribution that was made. Only the servers know whether they have counted
// it.
struct ResidualRecord {
  std::string worker_name;
  std::string layout_hash;
  // The value of --push_encoding. Averaged tensors are sent in fp32 instead.
  params::Encoding encoding = params::Encoding::kFp32;
  uint64_t server_incarnation = 0;
  messages::WorkerLife life;
  std::string life_secret;
  client::ContributionHeader header;
  std::vector<params::Bucket> buckets;
  std::vector<Version> base_versions;  // One entry per bucket.
  std::vector<int64_t> bucket_bytes;   // The encoded size of each bucket.
  messages::RoundReport report;        // The report of the round, without times and metrics.

  int64_t num_elements() const;
  int64_t contribution_bytes() const;
};

std::string FormatRecord(const ResidualRecord& record);
// Parses FormatRecord()'s text. Errors: InvalidArgument naming the field that is missing or wrong.
absl::StatusOr<ResidualRecord> ParseRecord(absl::string_view text);

// Checks that the residual belongs to this worker, to its job and to these servers, and that the
// vector is divided into the same buckets. Errors: FailedPrecondition naming what differs, with
// both values.
absl::Status CheckBelongs(const ResidualRecord& record, absl::string_view worker_name,
                          const messages::Registration& registration);

}  // namespace lodestar::trainer
