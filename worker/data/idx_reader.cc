// SPDX-License-Identifier: Apache-2.0

#include "worker/data/idx_reader.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/runtime/file_io.h"
#include "common/runtime/status_macros.h"
#include "worker/data/corpus_files.h"

namespace lodestar::data {
namespace {

// A magic number is four bytes: 0, 0, the element type (8 means unsigned byte) and the number of
// dimensions.
constexpr uint32_t kImagesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;
// The header of images has a magic number, count, rows and columns, all big-endian.
constexpr int64_t kImagesHeaderBytes = 16;
constexpr int64_t kLabelsHeaderBytes = 8;  // Magic number and count.
constexpr int64_t kMaxImageSide = 1 << 14;

constexpr std::array<const char*, 4> kFileNames = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte"};

// Returns the numbers after the magic number of the header. `start` has the first bytes of the
// file.
absl::StatusOr<std::vector<int64_t>> ParseWords(const std::string& path,
                                                absl::Span<const uint8_t> start, uint32_t magic,
                                                int64_t header_bytes) {
  if (static_cast<int64_t>(start.size()) < header_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ends at offset ", start.size(),
                                                   " inside its header of ", header_bytes, " bytes",
                                                   "; copy the file again"));
  }
  std::vector<int64_t> words;
  for (int64_t at = 0; at < header_bytes; at += 4) {
    const uint8_t* b = start.data() + at;
    words.push_back(int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 | int64_t{b[3]});
  }
  if (words[0] != magic) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: the magic number at offset 0 is 0x%08x, but must be 0x%08x (IDX, unsigned bytes); "
        "give the file of this name from a data set in the format of MNIST",
        path, words[0], magic));
  }
  words.erase(words.begin());
  return words;
}

// The header of one file.
struct IdxHeader {
  int64_t header_bytes = 0;
  int64_t num_entries = 0;
  ImageShape shape = {1, 1, 1};  // Shape of one entry.

  int64_t FileBytes() const { return header_bytes + num_entries * shape.num_pixels(); }
};

using ParseHeader = absl::StatusOr<IdxHeader> (*)(const std::string& path,
                                                  absl::Span<const uint8_t> start);

absl::StatusOr<IdxHeader> ParseImagesHeader(const std::string& path,
                                            absl::Span<const uint8_t> start) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> words,
                   ParseWords(path, start, kImagesMagic, kImagesHeaderBytes));
  const IdxHeader header = {kImagesHeaderBytes, words[0], {1, words[1], words[2]}};
  const auto is_side = [](int64_t side) { return side >= 1 && side <= kMaxImageSide; };
  if (is_side(header.shape.height) && is_side(header.shape.width)) return header;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": by the header at offset 8, images have ", header.shape.height, "x",
                   header.shape.width, " pixels, but a side must have 1 to ", kMaxImageSide,
                   " pixels; copy the file again, or give smaller images"));
}

absl::StatusOr<IdxHeader> ParseLabelsHeader(const std::string& path,
                                            absl::Span<const uint8_t> start) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> words,
                   ParseWords(path, start, kLabelsMagic, kLabelsHeaderBytes));
  return IdxHeader{kLabelsHeaderBytes, words[0]};
}

struct IdxFile {
  std::shared_ptr<const DataFile> file;
  IdxHeader header;
};

absl::StatusOr<IdxFile> OpenPart(const std::string& folder, const std::string& name,
                                 ParseHeader parse, ImageCorpus* corpus) {
  const std::string plain = absl::StrCat(folder, "/", name);
  const std::string compressed = absl::StrCat(plain, ".gz");
  IdxFile part;
  if (IsFile(plain)) {
    ASSIGN_OR_RETURN(part.file, DataFile::Open(plain));
    std::vector<uint8_t> start(std::min(kImagesHeaderBytes, part.file->num_bytes()));
    RETURN_IF_ERROR(part.file->Read(0, absl::MakeSpan(start)));
    ASSIGN_OR_RETURN(part.header, parse(plain, start));
  } else if (IsFile(compressed)) {
    const auto announce = [&](absl::Span<const uint8_t> start) -> absl::StatusOr<int64_t> {
      ASSIGN_OR_RETURN(part.header, parse(compressed, start));
      return part.header.FileBytes();
    };
    ASSIGN_OR_RETURN(part.file, DataFile::Inflate(compressed, kImagesHeaderBytes, announce));
  } else {
    const absl::Status there = CheckIsThere(plain);
    if (absl::IsPermissionDenied(there)) return there;
    return absl::NotFoundError(absl::StrCat(plain, ": no such file, nor ", compressed,
                                            "; IDX data has the files ", IdxFileNames()));
  }
  const int64_t num_bytes = part.file->num_bytes();
  if (num_bytes != part.header.FileBytes()) {
    return absl::InvalidArgumentError(
        absl::StrCat(part.file->path(), ": the header at offset 4 says ", part.header.num_entries,
                     " entries, which need ", part.header.FileBytes(), " bytes, but the file ",
                     num_bytes < part.header.FileBytes() ? "ends at offset " : "has ", num_bytes,
                     "; copy the file again"));
  }
  corpus->files.push_back(part.file);
  return part;
}

// Opens the files `images_name` and `labels_name`, and sets *shape.
absl::StatusOr<ImageFile> OpenPair(const std::string& folder, const char* images_name,
                                   const char* labels_name, ImageCorpus* corpus,
                                   ImageShape* shape) {
  ASSIGN_OR_RETURN(const IdxFile images, OpenPart(folder, images_name, &ParseImagesHeader, corpus));
  ASSIGN_OR_RETURN(const IdxFile labels, OpenPart(folder, labels_name, &ParseLabelsHeader, corpus));
  const int64_t num_labels = labels.header.num_entries;
  if (images.header.num_entries != num_labels) {
    return absl::InvalidArgumentError(
        absl::StrCat(labels.file->path(), ": by the header at offset 4, there are ", num_labels,
                     " labels, but ", images.file->path(), " has ", images.header.num_entries,
                     " images; take both from the same data set"));
  }
  *shape = images.header.shape;
  ImageFile file;
  file.images = images.file;
  file.image_offset = kImagesHeaderBytes;
  file.image_stride = shape->num_pixels();
  file.label_places = {.file = labels.file, .offset = kLabelsHeaderBytes};
  ASSIGN_OR_RETURN(file.labels, ReadLabels(file.label_places, num_labels));
  return file;
}

bool HasIdxFile(const std::string& folder, const char* name) {
  const std::string plain = absl::StrCat(folder, "/", name);
  return IsFile(plain) || IsFile(absl::StrCat(plain, ".gz"));
}

}  // namespace

absl::StatusOr<ImageCorpus> OpenIdx(const std::string& folder) {
  ImageCorpus corpus;
  corpus.format = "idx";
  ASSIGN_OR_RETURN(ImageFile train,
                   OpenPair(folder, kFileNames[0], kFileNames[1], &corpus, &corpus.shape));
  ImageShape heldout_shape;
  ASSIGN_OR_RETURN(ImageFile heldout,
                   OpenPair(folder, kFileNames[2], kFileNames[3], &corpus, &heldout_shape));
  if (heldout_shape != corpus.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(heldout.images->path(), ": by the header at offset 8, images are ",
                     heldout_shape.ToString(), ", but in ", train.images->path(), " they are ",
                     corpus.shape.ToString(), "; take both files from the same data set"));
  }
  corpus.train.push_back(std::move(train));
  corpus.heldout.push_back(std::move(heldout));
  RETURN_IF_ERROR(LeaveOutHeldoutCopies(&corpus));
  return corpus;
}

bool LooksLikeIdxFolder(const std::string& folder) {
  return std::any_of(kFileNames.begin(), kFileNames.end(),
                     [&folder](const char* name) { return HasIdxFile(folder, name); });
}

bool HasAllIdxFiles(const std::string& folder) {
  return std::all_of(kFileNames.begin(), kFileNames.end(),
                     [&folder](const char* name) { return HasIdxFile(folder, name); });
}

std::string IdxFileNames() {
  return "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
         "t10k-labels-idx1-ubyte, each with or without .gz";
}

}  // namespace lodestar::data
