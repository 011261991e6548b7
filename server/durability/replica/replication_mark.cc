// SPDX-License-Identifier: Apache-2.0

#include "server/durability/replica/replication_mark.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/archive/forms.h"
#include "common/archive/json_archive.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"

namespace lodestar::replica {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMaxBytes = 1 << 20;
constexpr NamedKind<ReplicationSide> kSideNames[] = {{ReplicationSide::kServer, "server"},
                                                     {ReplicationSide::kReplica, "replica"}};

}  // namespace

template <typename Archive>
void Describe(Archive& archive, ReplicationMark& mark) {
  archive.Note("format_version", kFormatVersion);
  archive("side", archive::As<archive::NameForm<kSideNames>>(mark.side));
  archive("term", archive::As<archive::HexForm>(mark.term));
  archive("asked_for", archive::As<archive::HexForm>(mark.asked_for));
  archive("is_whole", mark.is_whole);
  archive("peer", mark.peer);
  archive("since", mark.since);
}

namespace {

std::string PathIn(const std::string& folder) {
  return absl::StrCat(folder, "/", kReplicationMarkName);
}

std::string ToText(const ReplicationMark& mark) {
  return FormatJson(archive::RecordToJson(mark)) + "\n";
}

absl::StatusOr<ReplicationMark> FromText(absl::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseJson(text, {.max_bytes = kMaxBytes}));
  ASSIGN_OR_RETURN(const int64_t version, GetInt64(json, "format_version"));
  if (version != kFormatVersion) {
    return absl::UnimplementedError(absl::StrCat("it has format version ", version,
                                                 ", but this program reads ", kFormatVersion,
                                                 "; use the newer release"));
  }
  ReplicationMark mark;
  RETURN_IF_ERROR(archive::ReadRecord(json, mark));
  return mark;
}

bool Contains(const std::vector<uint64_t>& terms, uint64_t term) {
  return std::find(terms.begin(), terms.end(), term) != terms.end();
}

}  // namespace

absl::StatusOr<std::optional<ReplicationMark>> ReadReplicationMark(storage::FileSystem& disk,
                                                                   const std::string& folder) {
  const std::string path = PathIn(folder);
  if (!disk.Exists(path)) return std::nullopt;
  ASSIGN_OR_RETURN(const std::string text, disk.ReadWholeFile(path, kMaxBytes));
  absl::StatusOr<ReplicationMark> mark = FromText(text);
  if (mark.ok()) return *std::move(mark);
  if (absl::IsUnimplemented(mark.status())) {
    return absl::UnimplementedError(absl::StrCat(path, ": ", mark.status().message()));
  }
  return absl::DataLossError(
      absl::StrCat(path, " is damaged (", mark.status().message(),
                   "). The file records whether another server may have continued from a copy of "
                   "this journal. If no other server has continued, remove this file. If another "
                   "server has continued, use that server instead"));
}

absl::Status WriteReplicationMark(storage::FileSystem& disk, const std::string& folder,
                                  const ReplicationMark& mark) {
  const std::string path = PathIn(folder);
  const std::string unfinished = absl::StrCat(path, ".unfinished");
  ASSIGN_OR_RETURN(storage::SequentialFileWriter file,
                   storage::SequentialFileWriter::Create(disk, unfinished));
  RETURN_IF_ERROR(file.Append(ToText(mark)));
  RETURN_IF_ERROR(file.Finish(/*sync=*/true));
  RETURN_IF_ERROR(disk.Rename(unfinished, path));
  return disk.SyncDirectory(folder);
}

absl::Status RemoveReplicationMark(storage::FileSystem& disk, const std::string& folder) {
  RETURN_IF_ERROR(disk.RemoveAll(PathIn(folder)));
  return disk.SyncDirectory(folder);
}

absl::StatusOr<ReplicationPlan> JudgeStart(const ReplicationStart& start) {
  ReplicationPlan plan;
  if (!start.mark.has_value()) {
    if (start.may_promote && !start.has_journal && !start.wants_replica) {
      return absl::FailedPreconditionError(
          absl::StrCat(start.folder,
                       " has neither a journal nor a copy of one, so there is nothing to promote. "
                       "Give the --journal_dir and --checkpoint_dir of the replica. To begin a new "
                       "run, start without --promote"));
    }
    plan.has_nothing = start.wants_replica && !start.has_journal;
    return plan;
  }
  const ReplicationMark& mark = *start.mark;
  if (mark.side == ReplicationSide::kReplica) {
    if (!start.may_promote && !start.is_leader) {
      return absl::FailedPreconditionError(absl::StrCat(
          start.folder, " has been a replica of the server on ", mark.peer, " since ", mark.since,
          ". To keep it as a replica, start with --replica. If that server is gone for good, start "
          "with --promote to make this the server"));
    }
    if (!mark.is_whole) {
      return absl::FailedPreconditionError(
          absl::StrCat(start.folder, " is an incomplete replica of the server on ", mark.peer,
                       ", so it cannot be promoted; start the server on the machine that has the "
                       "server's own journal"));
    }
    plan.drops_mark = true;
    return plan;
  }
  if (start.wants_replica) {
    plan.previous = {mark.term};
    plan.previous.insert(plan.previous.end(), mark.asked_for.begin(), mark.asked_for.end());
    plan.has_nothing = !mark.is_whole;
    // If there was no term before, no other server can have resumed from a replica of this server.
    // So an empty replica may be filled.
    plan.may_begin_copy = start.may_promote || mark.term == 0;
    // This folder may be an incomplete copy of another replica. It must not be copied as if it were
    // complete.
    if (!mark.is_whole && start.has_journal) plan.may_begin_copy = false;
    return plan;
  }
  if (!mark.is_whole) {
    return absl::FailedPreconditionError(
        absl::StrCat(start.folder, " has only a part of the data of the replica ", mark.peer,
                     ". To copy the rest, start with --journal_replica=", mark.peer,
                     ". To begin a new run, empty the folder"));
  }
  if (!start.may_promote) {
    return absl::FailedPreconditionError(absl::StrCat(
        start.folder, " has had the replica ", mark.peer, " since ", mark.since,
        ", and another server may have continued from that replica. Start with "
        "--journal_replica=",
        mark.peer,
        ": if another server has continued, this server ends and says how to take that server's "
        "data. If no server has continued or will continue from the replica, start with --promote: "
        "this server then continues without the replica"));
  }
  plan.drops_mark = true;
  return plan;
}

absl::StatusOr<TermVerdict> JudgeTerm(const std::optional<ReplicationMark>& mark,
                                      const TermRequest& request) {
  if (!mark.has_value()) {
    if (request.may_begin_copy) return TermVerdict::kUpdate;
    if (request.has_nothing) {
      return absl::FailedPreconditionError(
          "the replica is empty, but this server may have a part of the data of another replica. "
          "Give --journal_replica with the address of that other replica. To begin a new run "
          "instead, empty this server's journal folder");
    }
    return absl::FailedPreconditionError(
        "the replica is empty, but this server's journal had another replica, from which another "
        "server may have continued. If no server has continued or will continue from that replica, "
        "start this server with --promote as well");
  }
  const bool goes_on = mark->term == request.term || Contains(request.previous, mark->term);
  if (request.has_nothing) {
    if (mark->is_whole) return TermVerdict::kFetch;
    if (goes_on) return TermVerdict::kUpdate;
    return absl::FailedPreconditionError(absl::StrCat(
        "the replica is an incomplete copy of the server on ", mark->peer,
        ", and this server has no journal. Start the server on the machine that has its "
        "journal. To begin a new run instead, empty the replica's folders"));
  }
  if (goes_on) return TermVerdict::kUpdate;
  if (request.previous.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the replica has a copy of another journal or of an older state of this one; "
                     "the server on ",
                     mark->peer, " has written to it since ", mark->since,
                     ". To continue with this server's journal, empty the replica's folders. To "
                     "continue with the replica's copy, move this server's journal away"));
  }
  return absl::AbortedError(absl::StrCat(
      "the server on ", mark->peer, " has written to the replica since ", mark->since,
      " and has continued without this server. Later data in this server's folders were never "
      "acknowledged. To continue from the replica, empty this server's folders. To make the "
      "replica a copy of this server instead, empty the replica's folders and give this server "
      "--promote"));
}

}  // namespace lodestar::replica
