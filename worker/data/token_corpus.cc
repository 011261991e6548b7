#include "worker/data/token_corpus.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "worker/data/corpus_files.h"
#include "worker/data/data_file.h"

namespace lodestar {
namespace {

std::string FilesText(size_t count) {
  return count == 1 ? "1 file" : absl::StrCat(count, " files");
}

// The files under `path` that are taken and not empty, in order; at least one.
absl::StatusOr<std::vector<CorpusFile>> ListFiles(const std::string& path,
                                                  const std::string& suffix) {
  ASSIGN_OR_RETURN(std::vector<CorpusFile> files, ListCorpusFiles(path));
  const size_t num_all = files.size();
  const bool is_folder = IsFolder(path);
  const auto drop = [&files](auto unwanted) {
    files.erase(std::remove_if(files.begin(), files.end(), unwanted), files.end());
  };
  drop([&](const CorpusFile& file) { return is_folder && !absl::EndsWith(file.path, suffix); });
  if (files.empty() && num_all > 0) {
    return absl::NotFoundError(
        absl::StrCat(path, ": no data; looked for *", suffix, " among ", FilesText(num_all)));
  }
  const size_t num_taken = files.size();
  drop([](const CorpusFile& file) { return file.num_bytes == 0; });
  if (files.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("empty corpus: ", path, " has ",
                                                   FilesText(num_taken), " with 0 bytes in all"));
  }
  return files;
}

absl::Status AddFile(const CorpusFile& file, FilePart part, TokenCorpus* corpus) {
  const auto descriptor = corpus->files.size() < DataFile::kMaxKeptDescriptors
                              ? DataFile::Descriptor::kKept
                              : DataFile::Descriptor::kPerRead;
  ASSIGN_OR_RETURN(std::shared_ptr<const DataFile> opened, DataFile::Open(file.path, descriptor));
  corpus->files.push_back({std::move(opened), 0, part});
  return absl::OkStatus();
}

// Files that are known by their names alone to be for neither training nor evaluation.
using LeftOut = std::vector<CorpusFile>;

void NoteLeftOut(const LeftOut& files, TokenCorpus* corpus) {
  if (files.empty()) return;
  corpus->notes.push_back(absl::StrCat("neither trained nor evaluated on ", FilesText(files.size()),
                                       ", by name, as ", files.front().relative_path));
}

// Whether it is one of these, maybe under another name.
bool IsAmong(const CorpusFile& file, const std::vector<CorpusFile>& files) {
  return std::any_of(files.begin(), files.end(), [&file](const CorpusFile& other) {
    std::error_code none;  // a file that cannot be examined is another one
    return std::filesystem::equivalent(file.path, other.path, none);
  });
}

bool IsHeldout(const TokenFile& file) { return file.part == FilePart::kHeldout; }

// Takes files out of the training data that are held out under another path.
absl::Status LeaveOutWhatIsHeldout(const DataConfig& config, TokenCorpus* corpus) {
  std::vector<TokenFile>& files = corpus->files;
  const auto is_other = [&files](const TokenFile& file) {
    return IsHeldout(file) ||
           std::none_of(files.begin(), files.end(), [&file](const TokenFile& other) {
             return IsHeldout(other) && other.file->IsSameAs(*file.file);
           });
  };
  std::vector<TokenFile> kept;
  std::copy_if(files.begin(), files.end(), std::back_inserter(kept), is_other);
  const size_t num_left_out = files.size() - kept.size();
  files = std::move(kept);
  if (std::all_of(files.begin(), files.end(), IsHeldout)) {
    return absl::InvalidArgumentError(absl::StrCat("--heldout_data=", config.heldout_path,
                                                   " is all of --data=", config.path,
                                                   ": nothing is left to train on"));
  }
  if (num_left_out > 0) {
    corpus->notes.push_back(absl::StrCat("not trained on ", FilesText(num_left_out),
                                         " of --data that --heldout_data has, too"));
  }
  return absl::OkStatus();
}

// Adds the files that are for training, or held out by their names. Returns the others.
absl::StatusOr<LeftOut> AddByNames(const DataConfig& config, const CorpusRule& rule,
                                   const std::vector<CorpusFile>& files, TokenCorpus* corpus) {
  std::vector<absl::string_view> names;
  for (const CorpusFile& file : files) names.push_back(file.relative_path);
  const std::vector<FilePart> parts = SplitByNames(names, rule.names, !config.heldout_path.empty());
  std::vector<absl::string_view> heldout;
  LeftOut left_out;
  for (size_t i = 0; i < files.size(); ++i) {
    if (parts[i] == FilePart::kHeldout) heldout.push_back(names[i]);
    if (parts[i] == FilePart::kLeftOut) {
      left_out.push_back(files[i]);
    } else {
      RETURN_IF_ERROR(AddFile(files[i], parts[i], corpus));
    }
  }
  if (heldout.size() + left_out.size() == files.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.path, " has only held-out or test data by the names of its files, as ",
                     names.front(), "; to train on a file, give its own path"));
  }
  corpus->heldout_name =
      heldout.empty() ? "the last tenth of every file"
                      : absl::StrCat(FilesText(heldout.size()), " by name, as ", heldout.front());
  return left_out;
}

}  // namespace

absl::StatusOr<TokenCorpus> OpenTokenCorpus(const DataConfig& config, const CorpusRule& rule) {
  TokenCorpus corpus;
  ASSIGN_OR_RETURN(const std::vector<CorpusFile> files, ListFiles(config.path, rule.suffix));
  ASSIGN_OR_RETURN(LeftOut left_out, AddByNames(config, rule, files, &corpus));
  if (config.heldout_path.empty()) {
    NoteLeftOut(left_out, &corpus);
    return corpus;
  }
  ASSIGN_OR_RETURN(const std::vector<CorpusFile> heldout,
                   ListFiles(config.heldout_path, rule.suffix));
  for (const CorpusFile& file : heldout) {
    RETURN_IF_ERROR(AddFile(file, FilePart::kHeldout, &corpus));
  }
  corpus.heldout_name = absl::StrCat("--heldout_data=", config.heldout_path);
  left_out.erase(std::remove_if(left_out.begin(), left_out.end(),
                                [&](const CorpusFile& file) { return IsAmong(file, heldout); }),
                 left_out.end());
  NoteLeftOut(left_out, &corpus);
  RETURN_IF_ERROR(LeaveOutWhatIsHeldout(config, &corpus));
  return corpus;
}

}  // namespace lodestar
