#include "worker/data/window_dataset.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "worker/data/content_hash.h"

namespace lodestar {
namespace {

constexpr int64_t kHeldoutDivisor = 10;  // the last tenth of every file
constexpr size_t kScanBytes =
    size_t{1} << 18;  // fits the second-level cache, so check and hash share one read

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

int64_t TokenAt(TokenWidth width, const uint8_t* data, size_t index) {
  if (width == TokenWidth::kOneByte) return data[index];
  uint16_t token;
  std::memcpy(&token, data + 2 * index, sizeof(token));
  return token;
}

int64_t LargestToken(TokenWidth width, const uint8_t* data, size_t count) {
  if (width == TokenWidth::kOneByte) return *std::max_element(data, data + count);
  uint16_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    uint16_t token;
    std::memcpy(&token, data + 2 * i, sizeof(token));
    largest = std::max(largest, token);
  }
  return largest;
}

absl::Status TokenOutsideVocabulary(const TokenFile& file, TokenWidth width, size_t first_byte,
                                    size_t count, int64_t vocabulary) {
  const uint8_t* data = file.file.bytes().data() + first_byte;
  size_t index = 0;
  while (index + 1 < count && TokenAt(width, data, index) < vocabulary) ++index;
  return absl::InvalidArgumentError(
      absl::StrCat(file.file.path(), ": token ", TokenAt(width, data, index), " at offset ",
                   first_byte + index * static_cast<size_t>(width),
                   ", but the model's vocabulary is ", vocabulary, " (tokens 0 to ", vocabulary - 1,
                   "); use a model with a larger vocabulary or other data"));
}

// Checks the vocabulary and adds the file's tokens to the hash, piece by piece.
absl::Status ScanTokens(const TokenFile& file, TokenWidth width, int64_t vocabulary,
                        ContentHash* hash) {
  const absl::Span<const uint8_t> bytes = file.file.bytes();
  const size_t token_bytes = static_cast<size_t>(width);
  const bool any_token_fits = vocabulary > (width == TokenWidth::kOneByte ? 255 : 65535);
  for (size_t at = file.header_bytes; at < bytes.size(); at += kScanBytes) {
    const size_t here = std::min(kScanBytes, bytes.size() - at);
    const size_t count = here / token_bytes;
    if (!any_token_fits && LargestToken(width, bytes.data() + at, count) >= vocabulary) {
      return TokenOutsideVocabulary(file, width, at, count, vocabulary);
    }
    hash->AddBytes(bytes.subspan(at, here));
  }
  hash->AddNumber(bytes.size() - file.header_bytes);
  return absl::OkStatus();
}

class WindowDataset : public Dataset {
 public:
  WindowDataset(const std::string& format, TokenWidth width, std::vector<TokenFile> files,
                const WindowCut& cut)
      : format_(format), cut_(cut), files_(std::move(files)), train_(width), heldout_(width) {
    for (const TokenFile& file : files_) {
      const absl::Span<const uint8_t> bytes = file.file.bytes();
      const int64_t token_bytes = static_cast<int64_t>(width);
      const uint8_t* tokens = bytes.data() + file.header_bytes;
      const int64_t num_tokens =
          (static_cast<int64_t>(bytes.size()) - file.header_bytes) / token_bytes;
      const int64_t num_heldout = num_tokens / kHeldoutDivisor;
      const int64_t num_train = num_tokens - num_heldout;
      train_.Append(tokens, num_train);
      heldout_.Append(tokens + num_train * token_bytes, num_heldout);
    }
    // Largest number that leaves room for any start in [0, context), but at least one window.
    num_train_windows_ = std::max<int64_t>(1, train_.num_tokens() / cut_.context - 1);
    num_phases_ = std::min(cut_.context, train_.num_tokens() - num_train_windows_ * cut_.context);
    num_heldout_windows_ = (heldout_.num_tokens() - 1) / cut_.context;
  }

  // Checks sizes and content; computes the fingerprint.
  absl::Status Validate(TokenWidth width) {
    const int64_t window = cut_.context + 1;
    if (train_.num_tokens() + heldout_.num_tokens() == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("empty corpus: ", NameOfFiles(), " holds 0 ", format_, " tokens"));
    }
    if (train_.num_tokens() < window || heldout_.num_tokens() < window) {
      return absl::InvalidArgumentError(absl::StrCat(
          "corpus is too short: one window needs ", window, " tokens (context ", cut_.context,
          " + 1), but ", NameOfFiles(), " gives ", train_.num_tokens(), " tokens for training and ",
          heldout_.num_tokens(),
          " held out (the last tenth of every file); use more data or a smaller context"));
    }
    ContentHash hash;
    hash.AddText(format_);
    hash.AddNumber(cut_.context);
    hash.AddNumber(cut_.vocabulary);
    hash.AddNumber(files_.size());
    for (const TokenFile& file : files_) {
      RETURN_IF_ERROR(ScanTokens(file, width, cut_.vocabulary, &hash));
    }
    fingerprint_ = hash.Hex();
    return absl::OkStatus();
  }

  int64_t num_train_samples() const override { return num_train_windows_; }
  int64_t num_heldout_samples() const override { return num_heldout_windows_; }
  int64_t tokens_per_sample() const override { return cut_.context; }
  const std::string& fingerprint() const override { return fingerprint_; }

  std::string Describe() const override {
    return absl::StrCat(format_, ": ", files_.size(), files_.size() == 1 ? " file, " : " files, ",
                        train_.num_tokens(), " tokens in ", num_train_windows_,
                        " training windows, ", heldout_.num_tokens(), " tokens in ",
                        num_heldout_windows_, " held-out windows, context ", cut_.context);
  }

  absl::Status ReadTrain(absl::Span<const SampleRef> samples, HostBatch* batch) const override {
    Prepare(samples.size(), batch);
    for (size_t i = 0; i < samples.size(); ++i) {
      RETURN_IF_ERROR(CheckIndex("training", samples[i].index, num_train_windows_));
      const int64_t begin = Phase(samples[i].epoch) + samples[i].index * cut_.context;
      CopyWindow(train_, begin, i, batch);
    }
    return absl::OkStatus();
  }

  absl::Status ReadHeldout(absl::Span<const int64_t> samples, HostBatch* batch) const override {
    Prepare(samples.size(), batch);
    for (size_t i = 0; i < samples.size(); ++i) {
      RETURN_IF_ERROR(CheckIndex("held-out", samples[i], num_heldout_windows_));
      CopyWindow(heldout_, samples[i] * cut_.context, i, batch);
    }
    return absl::OkStatus();
  }

 private:
  std::string NameOfFiles() const {
    const std::string& first = files_.front().file.path();
    return files_.size() == 1 ? first : absl::StrCat(first, " with ", files_.size() - 1, " more");
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
    return absl::OutOfRangeError(
        absl::StrCat(part, " sample ", index, " asked for, but there are ", limit));
  }

  void CopyWindow(const TokenStream& stream, int64_t begin, size_t row, HostBatch* batch) const {
    const int64_t at = static_cast<int64_t>(row) * cut_.context;
    stream.Copy(begin, cut_.context, batch->tokens.data() + at);
    stream.Copy(begin + 1, cut_.context, batch->targets.data() + at);
  }

  std::string format_;
  WindowCut cut_;
  std::vector<TokenFile> files_;
  TokenStream train_;
  TokenStream heldout_;
  int64_t num_train_windows_ = 0;
  int64_t num_phases_ = 1;  // starts that an epoch may have: [0, num_phases_)
  int64_t num_heldout_windows_ = 0;
  std::string fingerprint_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> MakeWindowDataset(const std::string& format,
                                                           TokenWidth width,
                                                           std::vector<TokenFile> files,
                                                           const WindowCut& cut) {
  auto dataset = std::make_unique<WindowDataset>(format, width, std::move(files), cut);
  RETURN_IF_ERROR(dataset->Validate(width));
  return dataset;
}

}  // namespace lodestar
