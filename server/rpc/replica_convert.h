// SPDX-License-Identifier: Apache-2.0

// Converts between proto/replica_service.proto and the native types of server/durability/replica.
// Errors: InvalidArgument, naming the field; DataLoss (a checksum is wrong).
#pragma once

#include "absl/status/statusor.h"
#include "proto/replica_service.pb.h"
#include "server/durability/replica/file_change.h"
#include "server/durability/replica/mirrored_folders.h"
#include "server/durability/replica/replica_store.h"
#include "server/durability/replica/replication_mark.h"

namespace lodestar::rpc {

v1::MirroredPath ToProto(const replica::MirroredPath& path);
absl::StatusOr<replica::MirroredPath> FromProto(const v1::MirroredPath& path);
v1::FileEntry ToProto(const replica::FileEntry& entry);
absl::StatusOr<replica::FileEntry> FromProto(const v1::FileEntry& entry);
v1::BeginTermRequest ToProto(const replica::TermRequest& request);
// Converts a request. Errors, besides those above: FailedPrecondition (the request has another wire
// version).
absl::StatusOr<replica::TermRequest> FromProto(const v1::BeginTermRequest& request);
v1::Term ToProto(const replica::ReplicaStore::Term& term);
replica::ReplicaStore::Term FromProto(const v1::Term& term);

// Converts a change to a request without number and term, which the caller must set. Moves the
// appended bytes.
v1::MirrorRequest ToProto(replica::FileChange change);
absl::StatusOr<replica::FileChange> FromProto(v1::MirrorRequest request);

}  // namespace lodestar::rpc
