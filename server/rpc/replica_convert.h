// Between proto/replica_service.proto and the native types of server/durability/replica. Errors are
// InvalidArgument and name the field, or DataLoss where a checksum does not hold.
#pragma once

#include "absl/status/statusor.h"
#include "proto/replica_service.pb.h"
#include "server/durability/replica/file_change.h"
#include "server/durability/replica/mirrored_folders.h"
#include "server/durability/replica/replica_store.h"
#include "server/durability/replica/replication_mark.h"

namespace lodestar {

v1::MirroredPath ToProto(const MirroredPath& path);
absl::StatusOr<MirroredPath> FromProto(const v1::MirroredPath& path);
v1::FileEntry ToProto(const FileEntry& entry);
absl::StatusOr<FileEntry> FromProto(const v1::FileEntry& entry);
v1::BeginTermRequest ToProto(const TermRequest& request);
// Errors also: FailedPrecondition for another wire version.
absl::StatusOr<TermRequest> FromProto(const v1::BeginTermRequest& request);
v1::Term ToProto(const ReplicaStore::Term& term);
ReplicaStore::Term FromProto(const v1::Term& term);

// The request has neither number nor term. What is appended is moved.
v1::MirrorRequest ToProto(FileChange change);
absl::StatusOr<FileChange> FromProto(v1::MirrorRequest request);

}  // namespace lodestar
