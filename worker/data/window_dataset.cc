// SPDX-License-Identifier: Apache-2.0

#include "worker/data/window_dataset.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/runtime/status_macros.h"
#include "worker/data/content_hash.h"
#include "worker/data/heldout_copies.h"

namespace lodestar::data {
namespace {

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Returns the index of the first token of the piece that is not below `vocabulary`, or -1.
int64_t FirstOutside(TokenWidth width, absl::Span<const uint8_t> piece, int64_t vocabulary,
                     std::vector<int32_t>* scratch) {
  const int64_t count = static_cast<int64_t>(piece.size()) / WidthBytes(width);
  scratch->resize(count);
  WidenTokens(width, piece.data(), count, scratch->data());
  // Tokens of 2^31 and above are negative here, so they are compared as unsigned numbers.
  const auto is_outside = [vocabulary](int32_t token) {
    return static_cast<uint32_t>(token) >= vocabulary;
  };
  // A loop without an early exit is several times faster than a search. Nearly always all tokens
  // are inside the vocabulary.
  bool any = false;
  for (const int32_t token : *scratch) any |= is_outside(token);
  if (!any) return -1;
  return std::find_if(scratch->begin(), scratch->end(), is_outside) - scratch->begin();
}

int64_t NumTokens(const TokenFile& file, TokenWidth width) {
  return (file.file->num_bytes() - file.header_bytes) / WidthBytes(width);
}

bool IsHeldout(const TokenFile& file) { return file.part == FilePart::kHeldout; }

// Holds out whole files if the last tenth of a typical file is shorter than a window. Otherwise one
// held-out window would have pieces of many files. Changes nothing if there are too few files, or
// too few different ones.
absl::Status ChooseWholeFiles(TokenWidth width, int64_t window, TokenCorpus* corpus) {
  std::vector<int64_t> sizes;
  for (const TokenFile& file : corpus->files) {
    if (file.part != FilePart::kCut) return absl::OkStatus();
    sizes.push_back(NumTokens(file, width));
  }
  const int64_t typical = TypicalFileTokens(sizes);
  if (sizes.size() == 1 || typical / kHeldoutDivisor >= window) return absl::OkStatus();
  const std::vector<FilePart> parts = HoldOutWholeFiles(sizes);
  TokenCorpus chosen = *corpus;
  for (size_t i = 0; i < parts.size(); ++i) chosen.files[i].part = parts[i];
  const absl::Status left_out = LeaveOutHeldoutCopies(&chosen);
  if (absl::IsInvalidArgument(left_out)) return absl::OkStatus();
  RETURN_IF_ERROR(left_out);
  int64_t num_train = 0;
  int64_t num_heldout = 0;
  for (const TokenFile& file : chosen.files) {
    (IsHeldout(file) ? num_heldout : num_train) += NumTokens(file, width);
  }
  if (num_heldout < window || num_train < window) return absl::OkStatus();
  chosen.heldout_name =
      absl::StrCat(std::count_if(chosen.files.begin(), chosen.files.end(), IsHeldout),
                   " whole files, because a tenth of a typical file of ", typical,
                   " tokens is shorter than a window");
  *corpus = std::move(chosen);
  return absl::OkStatus();
}

class WindowDataset : public Dataset {
 public:
  WindowDataset(TokenCorpus corpus, TokenWidth width, const WindowCut& cut)
      : corpus_(std::move(corpus)), width_(width), cut_(cut), train_(width), heldout_(width) {
    for (const TokenFile& file : corpus_.files) {
      const int64_t num_tokens = NumTokens(file, width);
      const int64_t num_heldout = file.part == FilePart::kHeldout ? num_tokens
                                  : file.part == FilePart::kTrain ? 0
                                                                  : num_tokens / kHeldoutDivisor;
      const int64_t num_train = num_tokens - num_heldout;
      train_.Append(file.file, file.header_bytes, num_train);
      heldout_.Append(file.file, file.header_bytes + num_train * WidthBytes(width), num_heldout);
    }
    // Windows begin `context` tokens apart, and the first one begins at one of the first `context`
    // tokens. This is the largest number of windows that fit for each of these beginnings, but at
    // least one.
    num_train_windows_ = std::max<int64_t>(1, train_.num_tokens() / cut_.context - 1);
    num_phases_ = std::min(cut_.context, train_.num_tokens() - num_train_windows_ * cut_.context);
    num_heldout_windows_ = (heldout_.num_tokens() - 1) / cut_.context;
  }

  // Checks sizes and content, and computes the fingerprint.
  absl::Status Validate(StopRequested stop_requested) {
    const int64_t window = cut_.context + 1;
    if (train_.num_tokens() + heldout_.num_tokens() == 0) {
      return absl::InvalidArgumentError(absl::StrCat("empty corpus: ", NameOfFiles(), " holds 0 ",
                                                     corpus_.format, " tokens; give other data"));
    }
    if (train_.num_tokens() < window || heldout_.num_tokens() < window) {
      return absl::InvalidArgumentError(
          absl::StrCat("the corpus is too short: one window needs ", window, " tokens (context ",
                       cut_.context, " + 1), but ", NameOfFiles(), " gives ", train_.num_tokens(),
                       " tokens for training and ", heldout_.num_tokens(), " held out (",
                       corpus_.heldout_name, "); use more data or a smaller context"));
    }
    return ComputeFingerprint(stop_requested);
  }

  int64_t num_train_samples() const override { return num_train_windows_; }
  int64_t num_heldout_samples() const override { return num_heldout_windows_; }
  int64_t tokens_per_sample() const override { return cut_.context; }
  const std::string& fingerprint() const override { return fingerprint_; }

  std::string Describe() const override {
    const size_t num_files = corpus_.files.size();
    std::string text = absl::StrCat(
        corpus_.format, ": ", num_files, num_files == 1 ? " file, " : " files, ",
        train_.num_tokens(), " tokens in ", num_train_windows_, " training windows, ",
        heldout_.num_tokens(), " tokens in ", num_heldout_windows_, " held-out windows (",
        corpus_.heldout_name, "), context ", cut_.context, "; ", corpus_.reading);
    for (const std::string& note : corpus_.notes) absl::StrAppend(&text, "; ", note);
    return text;
  }

  absl::Status ReadTrain(absl::Span<const SampleRef> samples, HostBatch* batch) const override {
    Prepare(samples.size(), batch);
    for (size_t i = 0; i < samples.size(); ++i) {
      RETURN_IF_ERROR(CheckIndex("training", samples[i].index, num_train_windows_));
      const int64_t begin = Phase(samples[i].epoch) + samples[i].index * cut_.context;
      RETURN_IF_ERROR(CopyWindow(train_, begin, i, batch));
    }
    return absl::OkStatus();
  }

  absl::Status ReadHeldout(absl::Span<const int64_t> samples, HostBatch* batch) const override {
    Prepare(samples.size(), batch);
    for (size_t i = 0; i < samples.size(); ++i) {
      RETURN_IF_ERROR(CheckIndex("held-out", samples[i], num_heldout_windows_));
      RETURN_IF_ERROR(CopyWindow(heldout_, samples[i] * cut_.context, i, batch));
    }
    return absl::OkStatus();
  }

 private:
  std::string NameOfFiles() const {
    const std::vector<TokenFile>& files = corpus_.files;
    const std::string& first = files.front().file->path();
    return files.size() == 1 ? first : absl::StrCat(first, " with ", files.size() - 1, " more");
  }

  // Hashes first the files with tokens for training, including files of which a tenth is held out.
  // Then hashes the files that are held out as a whole, if there are any.
  absl::Status ComputeFingerprint(StopRequested stop_requested) {
    std::vector<const TokenFile*> train;
    std::vector<const TokenFile*> heldout;
    for (const TokenFile& file : corpus_.files) {
      (file.part == FilePart::kHeldout ? heldout : train).push_back(&file);
    }
    ContentHash hash;
    hash.AddText(corpus_.format);
    hash.AddNumber(cut_.context);
    hash.AddNumber(cut_.vocabulary);
    if (width_ == TokenWidth::kFourBytes) hash.AddText("uint32");
    hash.AddNumber(train.size());
    for (const TokenFile* file : train) {
      RETURN_IF_ERROR(ScanTokens(*file, &hash, stop_requested));
    }
    if (!heldout.empty()) {
      hash.AddText("heldout");
      hash.AddNumber(heldout.size());
      for (const TokenFile* file : heldout) {
        RETURN_IF_ERROR(ScanTokens(*file, &hash, stop_requested));
      }
    }
    fingerprint_ = hash.Hex();
    return absl::OkStatus();
  }

  // Checks the file's tokens against the vocabulary and adds them to the hash, piece by piece.
  absl::Status ScanTokens(const TokenFile& file, ContentHash* hash,
                          StopRequested stop_requested) const {
    const bool any_token_fits = width_ == TokenWidth::kOneByte    ? cut_.vocabulary > 255
                                : width_ == TokenWidth::kTwoBytes ? cut_.vocabulary > 65535
                                                                  : false;
    std::vector<int32_t> scratch;
    RETURN_IF_ERROR(ScanDataFile(
        *file.file, file.header_bytes, stop_requested,
        [&](int64_t offset, absl::Span<const uint8_t> piece) -> absl::Status {
          if (!any_token_fits) {
            const int64_t index = FirstOutside(width_, piece, cut_.vocabulary, &scratch);
            if (index >= 0) {
              return TokenOutsideVocabulary(file, offset + index * WidthBytes(width_),
                                            static_cast<uint32_t>(scratch[index]));
            }
          }
          hash->AddBytes(piece);
          return absl::OkStatus();
        }));
    hash->AddNumber(file.file->num_bytes() - file.header_bytes);
    return absl::OkStatus();
  }

  absl::Status TokenOutsideVocabulary(const TokenFile& file, int64_t offset, uint32_t token) const {
    const auto signed_token = static_cast<int32_t>(token);
    return absl::InvalidArgumentError(absl::StrCat(
        file.file->path(), ": the token at offset ", offset, " is ", token,
        signed_token < 0 ? absl::StrCat(" (", signed_token, " as int32)") : "",
        ", but the model's vocabulary is ", cut_.vocabulary, " (tokens 0 to ", cut_.vocabulary - 1,
        "); the file was read as ", corpus_.reading, ". ", corpus_.advice));
  }

  int64_t Phase(int64_t epoch) const {
    return static_cast<int64_t>(Mix(Mix(cut_.seed + 0x9e3779b97f4a7c15u) + epoch) %
                                static_cast<uint64_t>(num_phases_));
  }

  void Prepare(size_t num_samples, HostBatch* batch) const {
    batch->num_samples = static_cast<int64_t>(num_samples);
    batch->features.clear();
    batch->tokens.resize(num_samples * cut_.context);
    batch->targets.resize(num_samples * cut_.context);
  }

  absl::Status CheckIndex(const char* part, int64_t index, int64_t limit) const {
    if (index >= 0 && index < limit) return absl::OkStatus();
    return absl::OutOfRangeError(absl::StrCat("this worker was to read ", part, " sample ", index,
                                              ", but its data has only ", limit, " samples"));
  }

  absl::Status CopyWindow(const TokenStream& stream, int64_t begin, size_t row,
                          HostBatch* batch) const {
    const int64_t at = static_cast<int64_t>(row) * cut_.context;
    std::vector<int32_t> window(cut_.context + 1);
    RETURN_IF_ERROR(stream.Copy(begin, cut_.context + 1, window.data()));
    std::copy(window.begin(), window.end() - 1, batch->tokens.begin() + at);
    std::copy(window.begin() + 1, window.end(), batch->targets.begin() + at);
    return absl::OkStatus();
  }

  TokenCorpus corpus_;
  TokenWidth width_;
  WindowCut cut_;
  TokenStream train_;
  TokenStream heldout_;
  int64_t num_train_windows_ = 0;
  // The first window of an epoch starts at one of the tokens [0, num_phases_).
  int64_t num_phases_ = 1;
  int64_t num_heldout_windows_ = 0;
  std::string fingerprint_;
};

}  // namespace

absl::Status LeaveOutHeldoutCopies(TokenCorpus* corpus) {
  HeldoutCopies copies;
  for (const TokenFile& file : corpus->files) {
    if (IsHeldout(file)) RETURN_IF_ERROR(copies.Add(*file.file, file.header_bytes));
  }
  std::vector<TokenFile> kept;
  std::string example;
  for (const TokenFile& file : corpus->files) {
    const DataFile* twin = nullptr;
    if (!IsHeldout(file)) {
      ASSIGN_OR_RETURN(twin, copies.Find(*file.file, file.header_bytes));
    }
    if (twin == nullptr) {
      kept.push_back(file);
    } else if (example.empty()) {
      example = absl::StrCat(file.file->path(), " has the same bytes as ", twin->path());
    }
  }
  const size_t num_left_out = corpus->files.size() - kept.size();
  corpus->files = std::move(kept);
  if (std::all_of(corpus->files.begin(), corpus->files.end(), IsHeldout)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no training data are left, because all training data are also held-out data (", example,
        "); give other held-out data"));
  }
  if (num_left_out > 0) {
    corpus->notes.push_back(absl::StrCat(
        num_left_out, num_left_out == 1 ? " file is" : " files are",
        " not trained on, because the held-out data have the same bytes; for example, ", example));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Dataset>> MakeWindowDataset(TokenCorpus corpus, TokenWidth width,
                                                           const WindowCut& cut,
                                                           StopRequested stop_requested) {
  RETURN_IF_ERROR(ChooseWholeFiles(width, cut.context + 1, &corpus));
  auto dataset = std::make_unique<WindowDataset>(std::move(corpus), width, cut);
  RETURN_IF_ERROR(dataset->Validate(stop_requested));
  return dataset;
}

}  // namespace lodestar::data
