#include "worker/data/file_bytes.h"

#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace lodestar {
namespace {

constexpr int kGzipWindowBits =
    15 + 16;  // largest window; 16 asks zlib for gzip with its header and checksum
constexpr size_t kInflateStepBytes = size_t{1} << 20;

// Owns a zlib stream over `input`, which must outlive it.
class GzipReader {
 public:
  explicit GzipReader(absl::Span<const uint8_t> input) : input_(input) {
    is_open_ = inflateInit2(&stream_, kGzipWindowBits) == Z_OK;
  }
  ~GzipReader() {
    if (is_open_) inflateEnd(&stream_);
  }
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  // Appends at most kInflateStepBytes to *output. Sets *is_done behind the last member of the file.
  absl::Status Step(std::vector<uint8_t>* output, bool* is_done) {
    if (!is_open_) return absl::ResourceExhaustedError("no memory for decompression");
    const size_t old_size = output->size();
    output->resize(old_size + kInflateStepBytes);
    stream_.next_out = output->data() + old_size;
    stream_.avail_out = static_cast<uInt>(kInflateStepBytes);
    Refill();
    const int result = inflate(&stream_, Z_NO_FLUSH);
    output->resize(output->size() - stream_.avail_out);
    *is_done = false;
    if (result == Z_STREAM_END) {
      Refill();
      *is_done = stream_.avail_in == 0;
      if (!*is_done) inflateReset(&stream_);
      return absl::OkStatus();
    }
    if (result == Z_OK) return absl::OkStatus();
    const bool is_short = result == Z_BUF_ERROR && stream_.avail_in == 0;
    return absl::InvalidArgumentError(absl::StrCat("damaged at offset ", position(), " of ",
                                                   input_.size(), " compressed bytes: ",
                                                   is_short                 ? "the file ends early"
                                                   : stream_.msg != nullptr ? stream_.msg
                                                                            : "not gzip data"));
  }

 private:
  size_t position() const { return fed_ - stream_.avail_in; }

  void Refill() {
    if (stream_.avail_in > 0) return;
    constexpr size_t kMost = std::numeric_limits<uInt>::max();
    const size_t count = std::min(input_.size() - fed_, kMost);
    stream_.next_in = const_cast<uint8_t*>(input_.data() + fed_);  // zlib's type; it only reads
    stream_.avail_in = static_cast<uInt>(count);
    fed_ += count;
  }

  absl::Span<const uint8_t> input_;
  size_t fed_ = 0;
  z_stream stream_ = {};
  bool is_open_ = false;
};

}  // namespace

absl::StatusOr<FileBytes> FileBytes::Map(const std::string& path) {
  FileBytes file;
  file.path_ = path;
  absl::StatusOr<MappedFile> mapped = MappedFile::Open(path);
  if (absl::IsResourceExhausted(mapped.status())) {
    return absl::ResourceExhaustedError(
        absl::StrCat(mapped.status().message(),
                     "; a process may map vm.max_map_count files (sysctl): raise it, or join small "
                     "files into larger ones"));
  }
  RETURN_IF_ERROR(mapped.status());
  file.mapped_ = *std::move(mapped);
  file.bytes_ = file.mapped_.bytes();
  return file;
}

absl::StatusOr<FileBytes> FileBytes::Inflate(const std::string& path, int64_t max_inflated_bytes) {
  ASSIGN_OR_RETURN(const FileBytes compressed, Map(path));
  FileBytes file;
  file.path_ = path;
  GzipReader reader(compressed.bytes());
  bool is_done = false;
  while (!is_done) {
    if (absl::Status status = reader.Step(&file.inflated_, &is_done); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
    }
    if (static_cast<int64_t>(file.inflated_.size()) > max_inflated_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": inflates to more than ", max_inflated_bytes, " bytes; unpack it"));
    }
  }
  file.bytes_ = absl::MakeConstSpan(file.inflated_);
  return file;
}

}  // namespace lodestar
