// What a shard's journal goes on from, a checkpoint or a file of weights, and where that is now:
// the folder of a run may have been moved, copied or mounted elsewhere since the journal named it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/checkpoints/checkpoint_manifest.h"
#include "common/storage/file_system.h"
#include "server/coordinator/shards/shard_command.h"

namespace lodestar::host {

// The folders of the run, as this process was given them.
struct RunFolders {
  std::string checkpoint_dir = {};  // empty: not known
  std::string fallback_dir = {};    // empty: there is none
  std::string journal_dir = {};     // of this server
};

struct JournalBase {
  WeightsSource source;
  // --checkpoint_dir when the journal named the source; empty: not known.
  std::string run_folder;
  // ContentChecksum() of a checkpoint; nullopt: a release that kept none has written the journal.
  std::optional<uint32_t> checksum;
};

// A checksum over the round and the files of a checkpoint. Copies of a checkpoint have the same.
uint32_t ContentChecksum(const Manifest& manifest);
// That of the source if it is a checkpoint that can be read, else nullopt. Blocks for the disk.
std::optional<uint32_t> ChecksumOf(FileSystem& file_system, const WeightsSource& source);

// Returns the path that `path` has since the folder `from` is called `to`. A path outside of `from`
// stays as it is, and so does every path if either folder is empty.
std::string PathAfterMove(const std::string& path, const std::string& from, const std::string& to);

// Returns true if this run may go on from the journal, and false if the journal is of another run
// that has ended in order, so that a checkpoint of that run has all of it. A journal is of the run
// whose folder it names. If that folder is gone, or has lost the checkpoint that the journal goes
// on from, it was moved. Blocks for the disk. Errors: FailedPrecondition if the journal has rounds
// of another run that no checkpoint may have.
absl::StatusOr<bool> IsJournalOfRun(FileSystem& file_system, const JournalBase& base,
                                    const RunFolders& folders);

// Returns the base's source with the path under which it lies today: under its name in the folders
// of the run, or where the journal says. A checkpoint that the journal names inside of the run is
// taken from there alone: a copied run never reads the folder that it was copied from. Verifies a
// checkpoint whole; blocks for the disk. Errors: Unavailable, naming the paths, if the source is
// nowhere, which an operator may mend; NotFound if the run has other checkpoints but not that one;
// those of VerifyCheckpoint().
absl::StatusOr<WeightsSource> FindBase(FileSystem& file_system, const JournalBase& base,
                                       const RunFolders& folders);

}  // namespace lodestar::host
