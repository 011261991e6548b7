// SPDX-License-Identifier: Apache-2.0

#include "server/rpc/replica_convert.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "common/crc32c/crc32c.h"
#include "common/process/version.h"
#include "common/runtime/overloaded.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::rpc {
namespace {

constexpr size_t kMaxServerBytes = 256;

// Returns the checksum of the bytes and of the number of their file. The number is included,
// because a damaged number would send the bytes to another file.
uint32_t ChecksumOf(uint64_t file, absl::string_view bytes) {
  return crc32c::Crc32c(bytes.data(), bytes.size(), crc32c::Crc32c(&file, sizeof(file)));
}

}  // namespace

v1::MirroredPath ToProto(const replica::MirroredPath& path) {
  v1::MirroredPath proto;
  proto.set_folder(path.folder == replica::MirroredFolder::kJournal
                       ? v1::MIRRORED_FOLDER_JOURNAL
                       : v1::MIRRORED_FOLDER_CHECKPOINTS);
  proto.set_path(path.path);
  return proto;
}

absl::StatusOr<replica::MirroredPath> FromProto(const v1::MirroredPath& path) {
  switch (path.folder()) {
    case v1::MIRRORED_FOLDER_JOURNAL:
      return replica::MirroredPath{replica::MirroredFolder::kJournal, path.path()};
    case v1::MIRRORED_FOLDER_CHECKPOINTS:
      return replica::MirroredPath{replica::MirroredFolder::kCheckpoints, path.path()};
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("this release does not know folder number ", path.folder(),
                       ". Use the same release for the server and the replica"));
  }
}

v1::FileEntry ToProto(const replica::FileEntry& entry) {
  v1::FileEntry proto;
  *proto.mutable_path() = ToProto(entry.path);
  proto.set_is_directory(entry.is_directory);
  proto.set_num_bytes(entry.num_bytes);
  proto.set_crc32c(entry.crc32c);
  return proto;
}

absl::StatusOr<replica::FileEntry> FromProto(const v1::FileEntry& entry) {
  ASSIGN_OR_RETURN(replica::MirroredPath path, FromProto(entry.path()));
  return replica::FileEntry{std::move(path), entry.is_directory(), entry.num_bytes(),
                            entry.crc32c()};
}

v1::Term ToProto(const replica::ReplicaStore::Term& term) {
  v1::Term proto;
  proto.set_shard(term.shard);
  proto.set_id(term.id);
  proto.set_connection(term.connection);
  return proto;
}

replica::ReplicaStore::Term FromProto(const v1::Term& term) {
  return {term.shard(), term.id(), term.connection()};
}

v1::BeginTermRequest ToProto(const replica::TermRequest& request) {
  v1::BeginTermRequest proto;
  *proto.mutable_term() =
      ToProto(replica::ReplicaStore::Term{request.shard, request.term, request.connection});
  for (const uint64_t previous : request.previous) proto.add_previous(previous);
  proto.set_has_nothing(request.has_nothing);
  proto.set_may_begin_copy(request.may_begin_copy);
  proto.set_num_shards(request.num_shards);
  proto.set_checkpoint_dir(request.checkpoint_dir);
  proto.set_server(request.server);
  proto.set_wire_version(process::kWireVersion);
  return proto;
}

absl::StatusOr<replica::TermRequest> FromProto(const v1::BeginTermRequest& request) {
  if (request.wire_version() != process::kWireVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server speaks wire version ", request.wire_version(),
                     ", but the replica speaks ", process::kWireVersion, "; use the same release"));
  }
  replica::TermRequest native;
  native.term = request.term().id();
  native.connection = request.term().connection();
  native.previous.assign(request.previous().begin(), request.previous().end());
  native.has_nothing = request.has_nothing();
  native.may_begin_copy = request.may_begin_copy();
  native.shard = request.term().shard();
  native.num_shards = request.num_shards();
  native.checkpoint_dir = request.checkpoint_dir();
  native.server = PeerText(request.server(), kMaxServerBytes);
  return native;
}

v1::MirrorRequest ToProto(replica::FileChange change) {
  v1::MirrorRequest proto;
  std::visit(Overloaded{
                 [&](const replica::CreateFileChange& create) {
                   proto.mutable_create_file()->set_file(create.file);
                   *proto.mutable_create_file()->mutable_path() = ToProto(create.path);
                   proto.mutable_create_file()->set_goes_on(create.goes_on);
                 },
                 [&](replica::AppendChange& append) {
                   proto.mutable_append()->set_file(append.file);
                   proto.mutable_append()->set_crc32c(ChecksumOf(append.file, append.bytes));
                   proto.mutable_append()->set_data(std::move(append.bytes));
                 },
                 [&](const replica::SyncFileChange& sync) { proto.set_sync_file(sync.file); },
                 [&](const replica::CloseFileChange& close) { proto.set_close_file(close.file); },
                 [&](const replica::CreateDirectoriesChange& create) {
                   *proto.mutable_create_directories() = ToProto(create.path);
                 },
                 [&](const replica::RenameChange& rename) {
                   *proto.mutable_rename()->mutable_from() = ToProto(rename.from);
                   *proto.mutable_rename()->mutable_to() = ToProto(rename.to);
                 },
                 [&](const replica::RemoveChange& remove) {
                   *proto.mutable_remove() = ToProto(remove.path);
                 },
                 [&](const replica::SyncDirectoryChange& sync) {
                   *proto.mutable_sync_directory() = ToProto(sync.path);
                 },
                 [&](const replica::CopyIsWholeChange&) { proto.mutable_copy_is_whole(); },
             },
             change);
  return proto;
}

absl::StatusOr<replica::FileChange> FromProto(v1::MirrorRequest request) {
  switch (request.change_case()) {
    case v1::MirrorRequest::kCreateFile: {
      ASSIGN_OR_RETURN(replica::MirroredPath path, FromProto(request.create_file().path()));
      return replica::CreateFileChange{request.create_file().file(), std::move(path),
                                       request.create_file().goes_on()};
    }
    case v1::MirrorRequest::kAppend: {
      v1::MirrorRequest::Append& append = *request.mutable_append();
      const uint32_t crc32c = ChecksumOf(append.file(), append.data());
      if (crc32c != append.crc32c()) {
        return absl::DataLossError(
            absl::StrCat("change ", request.number(),
                         " was damaged on its way to the replica: it arrived with the checksum ",
                         crc32c, ", but was sent with ", append.crc32c()));
      }
      return replica::AppendChange{append.file(), std::move(*append.mutable_data())};
    }
    case v1::MirrorRequest::kSyncFile:
      return replica::SyncFileChange{request.sync_file()};
    case v1::MirrorRequest::kCloseFile:
      return replica::CloseFileChange{request.close_file()};
    case v1::MirrorRequest::kCreateDirectories: {
      ASSIGN_OR_RETURN(replica::MirroredPath path, FromProto(request.create_directories()));
      return replica::CreateDirectoriesChange{std::move(path)};
    }
    case v1::MirrorRequest::kRename: {
      ASSIGN_OR_RETURN(replica::MirroredPath from, FromProto(request.rename().from()));
      ASSIGN_OR_RETURN(replica::MirroredPath to, FromProto(request.rename().to()));
      return replica::RenameChange{std::move(from), std::move(to)};
    }
    case v1::MirrorRequest::kRemove: {
      ASSIGN_OR_RETURN(replica::MirroredPath path, FromProto(request.remove()));
      return replica::RemoveChange{std::move(path)};
    }
    case v1::MirrorRequest::kSyncDirectory: {
      ASSIGN_OR_RETURN(replica::MirroredPath path, FromProto(request.sync_directory()));
      return replica::SyncDirectoryChange{std::move(path)};
    }
    case v1::MirrorRequest::kCopyIsWhole:
      return replica::CopyIsWholeChange{};
    case v1::MirrorRequest::CHANGE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("message ", request.number(),
                   " from the server has no change that this release knows. Use the same release "
                   "for the server and the replica"));
}

}  // namespace lodestar::rpc
