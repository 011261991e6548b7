// SPDX-License-Identifier: Apache-2.0

#include "worker/data/token_corpus.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/runtime/status_macros.h"
#include "worker/data/corpus_files.h"
#include "worker/data/data_file.h"

namespace lodestar::data {
namespace {

std::string FilesText(size_t count) {
  return count == 1 ? "1 file" : absl::StrCat(count, " files");
}

std::string SideEntriesText(size_t count) {
  return absl::StrCat(count, count == 1
                                 ? " hidden file, backup, partial download or file of a run"
                                 : " hidden files, backups, partial downloads or files of a run");
}

// Returns a text such as "*.bin or *.npy".
std::string PatternText(absl::Span<const absl::string_view> suffixes) {
  return absl::StrJoin(suffixes, " or ", [](std::string* text, absl::string_view suffix) {
    absl::StrAppend(text, "*", suffix);
  });
}

absl::Status EmptyFile(const CorpusFile& file) {
  return absl::InvalidArgumentError(absl::StrCat(
      file.path, " has 0 bytes; copy or make it again, or remove it if it should be ", "empty"));
}

// Files that are left out. The log has only their numbers.
struct LeftOutCounts {
  size_t num_empty = 0;
  size_t num_side_entries = 0;
  std::string side_entry = {};  // The first side entry.
};

// Returns the files under `path` that are read, in order. There is at least one. Counts the files
// that are not read in `counts`.
absl::StatusOr<std::vector<CorpusFile>> ListFiles(const std::string& path, const CorpusRule& rule,
                                                  LeftOutCounts* counts) {
  ASSIGN_OR_RETURN(CorpusListing listing, ListCorpusFiles(path));
  std::vector<CorpusFile>& files = listing.files;
  const size_t num_all = files.size();
  if (!listing.side_entries.empty()) {
    if (num_all == 0) {
      return absl::NotFoundError(absl::StrCat(path, ": there are no data, only ",
                                              SideEntriesText(listing.side_entries.size()),
                                              " such as ", listing.side_entries.front(),
                                              "; rename it, or give the path of that file itself"));
    }
    if (counts->num_side_entries == 0) counts->side_entry = listing.side_entries.front();
    counts->num_side_entries += listing.side_entries.size();
  }
  const bool is_folder = IsFolder(path);
  const auto is_taken = [&](const CorpusFile& file) {
    const auto matches = [&file](absl::string_view end) { return absl::EndsWith(file.path, end); };
    return !is_folder || rule.suffixes.empty() ||
           std::any_of(rule.suffixes.begin(), rule.suffixes.end(), matches);
  };
  files.erase(std::remove_if(files.begin(), files.end(), std::not_fn(is_taken)), files.end());
  if (files.empty() && num_all > 0) {
    return absl::NotFoundError(absl::StrCat(path, ": there are no data; the worker looked for ",
                                            PatternText(rule.suffixes), " among ",
                                            FilesText(num_all)));
  }
  const auto is_empty = [](const CorpusFile& file) { return file.num_bytes == 0; };
  if (std::all_of(files.begin(), files.end(), is_empty)) {
    return absl::InvalidArgumentError(absl::StrCat("empty corpus: ", path, " has ",
                                                   FilesText(files.size()),
                                                   " with 0 bytes in all; give a file with data"));
  }
  const auto empty = std::find_if(files.begin(), files.end(), is_empty);
  if (empty != files.end() && rule.empty_files == EmptyFiles::kRefused) return EmptyFile(*empty);
  const auto first_left_out =
      std::remove_if(files.begin(), files.end(), [&](const CorpusFile& file) {
        return is_empty(file) && PartByName(file.relative_path) == FilePart::kCut;
      });
  counts->num_empty += files.end() - first_left_out;
  files.erase(first_left_out, files.end());
  return std::move(files);
}

absl::Status AddFile(const CorpusFile& file, FilePart part, TokenCorpus* corpus) {
  const auto descriptor = corpus->files.size() < DataFile::kMaxKeptDescriptors
                              ? DataFile::Descriptor::kKept
                              : DataFile::Descriptor::kPerRead;
  ASSIGN_OR_RETURN(std::shared_ptr<const DataFile> opened, DataFile::Open(file.path, descriptor));
  corpus->files.push_back({std::move(opened), 0, part});
  return absl::OkStatus();
}

// Files that the names exclude from training and evaluation.
using LeftOut = std::vector<CorpusFile>;

void NoteLeftOut(const LeftOut& files, TokenCorpus* corpus) {
  if (files.empty()) return;
  corpus->notes.push_back(absl::StrCat("left out because of their names: ", FilesText(files.size()),
                                       ", such as ", files.front().relative_path));
}

// Returns true if `file` is one of `files`, maybe under another name.
bool IsAmong(const CorpusFile& file, const std::vector<CorpusFile>& files) {
  return std::any_of(files.begin(), files.end(), [&file](const CorpusFile& other) {
    // A file that cannot be examined counts as a different file.
    std::error_code none;
    return std::filesystem::equivalent(file.path, other.path, none);
  });
}

// Adds the files for training and the held-out files to *corpus, by their names. Returns the files
// that the names exclude. Adds the number of other empty files to *counts.
absl::StatusOr<LeftOut> AddByNames(const DataConfig& config, const CorpusRule& rule,
                                   const std::vector<CorpusFile>& files, LeftOutCounts* counts,
                                   TokenCorpus* corpus) {
  std::vector<absl::string_view> names;
  for (const CorpusFile& file : files) names.push_back(file.relative_path);
  const NameSplit split = SplitByNames(names, rule.names, !config.heldout_path.empty());
  const std::vector<FilePart>& parts = split.parts;
  if (split.ignored.has_value()) {
    corpus->notes.push_back(
        absl::StrCat(names[split.ignored->example],
                     " is used for training, whatever its name says. Names decide what is ",
                     "held out only if every file has a name such as train, val, dev or test. ",
                     names[split.ignored->because_of], " has no such name"));
  }
  // If the names hold out or leave out any file, an empty file for training or for holding out is
  // an error. Otherwise empty files are left out.
  const bool is_split = std::any_of(parts.begin(), parts.end(), [](FilePart part) {
    return part == FilePart::kHeldout || part == FilePart::kLeftOut;
  });
  std::vector<absl::string_view> heldout;
  LeftOut left_out;
  for (size_t i = 0; i < files.size(); ++i) {
    if (parts[i] == FilePart::kHeldout) heldout.push_back(names[i]);
    if (parts[i] == FilePart::kLeftOut) {
      left_out.push_back(files[i]);
    } else if (files[i].num_bytes == 0) {
      if (is_split) return EmptyFile(files[i]);
      ++counts->num_empty;
    } else {
      RETURN_IF_ERROR(AddFile(files[i], parts[i], corpus));
    }
  }
  if (heldout.size() + left_out.size() == files.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.path, " has only held-out or test data, because of file names such as ",
                     names.front(), "; to train on a file, give the path of that file itself"));
  }
  corpus->heldout_name = heldout.empty() ? "the last tenth of every file"
                                         : absl::StrCat(FilesText(heldout.size()),
                                                        " by name, such as ", heldout.front());
  return left_out;
}

}  // namespace

absl::StatusOr<TokenCorpus> OpenTokenCorpus(const DataConfig& config, const CorpusRule& rule) {
  TokenCorpus corpus;
  LeftOutCounts counts;
  ASSIGN_OR_RETURN(const std::vector<CorpusFile> files, ListFiles(config.path, rule, &counts));
  ASSIGN_OR_RETURN(LeftOut left_out, AddByNames(config, rule, files, &counts, &corpus));
  if (!config.heldout_path.empty()) {
    ASSIGN_OR_RETURN(const std::vector<CorpusFile> heldout,
                     ListFiles(config.heldout_path, rule, &counts));
    for (const CorpusFile& file : heldout) {
      if (file.num_bytes == 0) return EmptyFile(file);
      RETURN_IF_ERROR(AddFile(file, FilePart::kHeldout, &corpus));
    }
    corpus.heldout_name = absl::StrCat("--heldout_data=", config.heldout_path);
    left_out.erase(std::remove_if(left_out.begin(), left_out.end(),
                                  [&](const CorpusFile& file) { return IsAmong(file, heldout); }),
                   left_out.end());
  }
  NoteLeftOut(left_out, &corpus);
  if (counts.num_empty > 0) {
    corpus.notes.push_back(
        absl::StrCat("left out because of 0 bytes: ", FilesText(counts.num_empty)));
  }
  if (counts.num_side_entries > 0) {
    corpus.notes.push_back(absl::StrCat("left out: ", SideEntriesText(counts.num_side_entries),
                                        ", such as ", counts.side_entry));
  }
  return corpus;
}

}  // namespace lodestar::data
