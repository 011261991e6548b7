#include "server/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>
#include <tuple>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/checkpoint_manifest.h"
#include "common/file_io.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr char kPrefix[] = "round-";

std::optional<CheckpointEntry> ParseName(const std::string& root, const std::string& name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, kPrefix)) return std::nullopt;
  CheckpointEntry entry;
  entry.path = absl::StrCat(root, "/", name);
  for (const char* suffix : {kTemporarySuffix, kReplacedSuffix, kAbandonedSuffix}) {
    if (absl::ConsumeSuffix(&rest, suffix)) {
      entry.suffix = suffix;
      break;
    }
  }
  if (entry.suffix == kTemporarySuffix) rest = rest.substr(0, rest.find('.'));  // the try
  int64_t round = 0;
  if (!absl::SimpleAtoi(rest, &round) || round < 0) return std::nullopt;
  entry.round = Round(round);
  return entry;
}

}  // namespace

std::string CheckpointName(Round round) {
  return absl::StrFormat("%s%08d", kPrefix, round.value());
}

absl::StatusOr<std::vector<CheckpointEntry>> ListCheckpoints(const std::string& root) {
  std::vector<CheckpointEntry> entries;
  std::error_code error;
  std::filesystem::directory_iterator directory(root, error);
  if (error == std::errc::no_such_file_or_directory) return entries;
  while (!error && directory != std::filesystem::directory_iterator()) {
    if (auto entry = ParseName(root, directory->path().filename().string()); entry.has_value()) {
      entries.push_back(*std::move(entry));
    }
    directory.increment(error);
  }
  if (error) return ErrnoStatus(error.value(), "list directory", root);
  std::sort(entries.begin(), entries.end(), [](const CheckpointEntry& a, const CheckpointEntry& b) {
    return std::tuple(-a.round.value(), a.suffix) < std::tuple(-b.round.value(), b.suffix);
  });
  return entries;
}

absl::StatusOr<std::vector<CheckpointEntry>> ListWholeCheckpoints(const std::string& root) {
  ASSIGN_OR_RETURN(std::vector<CheckpointEntry> entries, ListCheckpoints(root));
  std::erase_if(entries, [](const CheckpointEntry& entry) {
    return !entry.suffix.empty() && entry.suffix != kReplacedSuffix;
  });
  return entries;
}

Round WrittenRound(const CheckpointEntry& entry) {
  const absl::StatusOr<Manifest> manifest = ReadManifest(entry.path);
  return manifest.ok() ? manifest->round : entry.round;
}

absl::Status RenameDirectory(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("rename ", from, " to"), to);
}

void RemoveDirectory(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace lodestar
