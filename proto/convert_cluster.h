// SPDX-License-Identifier: Apache-2.0

// Converts between the messages of workers and coordinator in proto/cluster_service.proto and
// common/messages/cluster_messages.h, for both sides.
//
// FromProto() checks lengths of texts, signs, that numbers are finite, and that the parts of a
// message agree with each other. Errors are InvalidArgument and name the field. Texts that are
// shown have passed PeerText().
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/messages/cluster_messages.h"
#include "proto/cluster_service.pb.h"

namespace lodestar::wire {

// Returns the worker and its incarnation, which are in every request of a worker except Register's,
// and in the reply to Register.
template <typename Request>
messages::WorkerLife LifeFromProto(const Request& request) {
  return {WorkerId(request.worker_id()), Incarnation(request.incarnation())};
}
template <typename Request>
void SetLife(const messages::WorkerLife& life, Request* request) {
  request->set_worker_id(life.worker.value());
  request->set_incarnation(life.incarnation.value());
}

v1::ServerAddress ToProto(const messages::ServerAddress& server);
// Returns the servers of a job, by shard. Their number is within the limit, and each address may be
// used: see CheckPeerAddress().
absl::StatusOr<std::vector<messages::ServerAddress>> FromProto(
    const google::protobuf::RepeatedPtrField<v1::ServerAddress>& servers);

// Makes a request with the wire version and the version of this software.
v1::RegisterRequest ToProto(const messages::RegisterCall& call);
// Converts a request, but leaves `peer` empty. Errors also: InvalidArgument if the wire version is
// not ours.
absl::StatusOr<messages::RegisterCall> FromProto(const v1::RegisterRequest& request);

v1::RegisterReply ToProto(const messages::Registration& registration);
// Converts a reply. Computes the bucket plan from the reply's layout and servers. Errors also:
// InvalidArgument if that plan is not the one in the reply, or if layout and servers do not fit
// each other.
absl::StatusOr<messages::Registration> FromProto(const v1::RegisterReply& reply);

v1::DatasetInfo ToProto(const messages::DatasetInfo& dataset);
absl::StatusOr<messages::DatasetInfo> FromProto(const v1::DatasetInfo& dataset);

v1::HeartbeatRequest ToProto(const messages::HeartbeatCall& call);
absl::StatusOr<messages::HeartbeatCall> FromProto(const v1::HeartbeatRequest& request);
v1::HeartbeatReply ToProto(const messages::HeartbeatAnswer& answer);
absl::StatusOr<messages::HeartbeatAnswer> FromProto(const v1::HeartbeatReply& reply);

v1::Grant ToProto(const messages::Grant& grant);
absl::StatusOr<messages::Grant> FromProto(const v1::Grant& grant);

v1::RoundReport ToProto(const messages::RoundReport& report);
absl::StatusOr<messages::RoundReport> FromProto(const v1::RoundReport& report);

}  // namespace lodestar::wire
