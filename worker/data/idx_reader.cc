#include "worker/data/idx_reader.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "worker/data/corpus_files.h"

namespace lodestar {
namespace {

// Magic number: 0, 0, element type (8: unsigned byte), number of dimensions.
constexpr uint32_t kImagesMagic = 0x00000803;
constexpr uint32_t kLabelsMagic = 0x00000801;
constexpr int64_t kImagesHeaderBytes = 16;  // magic, count, rows, columns; all big-endian
constexpr int64_t kLabelsHeaderBytes = 8;   // magic, count
constexpr int64_t kMaxImageSide = 1 << 14;

constexpr std::array<const char*, 4> kFileNames = {
    "train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte"};

// The words of the header behind the magic number.
absl::StatusOr<std::vector<int64_t>> ReadHeader(const DataFile& file, uint32_t magic,
                                                int64_t header_bytes) {
  if (file.num_bytes() < header_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ends at offset ",
                                                   file.num_bytes(), " inside its header of ",
                                                   header_bytes, " bytes"));
  }
  std::vector<uint8_t> header(header_bytes);
  RETURN_IF_ERROR(file.Read(0, absl::MakeSpan(header)));
  std::vector<int64_t> words;
  for (size_t at = 0; at < header.size(); at += 4) {
    const uint8_t* b = header.data() + at;
    words.push_back(int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 | int64_t{b[3]});
  }
  if (words[0] != magic) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: magic number 0x%08x at offset 0, expected 0x%08x (IDX, unsigned bytes)", file.path(),
        words[0], magic));
  }
  words.erase(words.begin());
  return words;
}

absl::Status CheckSize(const DataFile& file, int64_t wanted_bytes, int64_t count) {
  const int64_t num_bytes = file.num_bytes();
  if (num_bytes == wanted_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": the header at offset 4 tells ", count, " entries, that is ", wanted_bytes,
      " bytes, but the file ", num_bytes < wanted_bytes ? "ends at offset " : "has ", num_bytes));
}

absl::StatusOr<std::shared_ptr<const DataFile>> OpenPart(const std::string& folder,
                                                         const std::string& name,
                                                         ImageCorpus* corpus) {
  const std::string plain = absl::StrCat(folder, "/", name);
  const std::string compressed = absl::StrCat(plain, ".gz");
  absl::StatusOr<std::shared_ptr<const DataFile>> file = absl::NotFoundError(
      absl::StrCat(plain, ": no such file, nor ", compressed, "; IDX data is ", IdxFileNames()));
  if (IsFile(plain)) {
    file = DataFile::Open(plain);
  } else if (IsFile(compressed)) {
    file = DataFile::Inflate(compressed);
  }
  if (file.ok()) corpus->files.push_back(*file);
  return file;
}

// Reads the pair of files `images_name`, `labels_name`; sets *shape.
absl::StatusOr<ImageFile> OpenPair(const std::string& folder, const char* images_name,
                                   const char* labels_name, ImageCorpus* corpus,
                                   ImageShape* shape) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const DataFile> images,
                   OpenPart(folder, images_name, corpus));
  ASSIGN_OR_RETURN(const std::shared_ptr<const DataFile> labels,
                   OpenPart(folder, labels_name, corpus));
  ASSIGN_OR_RETURN(const std::vector<int64_t> images_header,
                   ReadHeader(*images, kImagesMagic, kImagesHeaderBytes));
  ASSIGN_OR_RETURN(const std::vector<int64_t> labels_header,
                   ReadHeader(*labels, kLabelsMagic, kLabelsHeaderBytes));
  const int64_t num_images = images_header[0];
  const int64_t num_labels = labels_header[0];
  *shape = {1, images_header[1], images_header[2]};
  if (shape->height < 1 || shape->height > kMaxImageSide || shape->width < 1 ||
      shape->width > kMaxImageSide) {
    return absl::InvalidArgumentError(
        absl::StrCat(images->path(), ": images of ", shape->height, "x", shape->width,
                     " pixels at offset 8, expected sides of 1 to ", kMaxImageSide));
  }
  RETURN_IF_ERROR(
      CheckSize(*images, kImagesHeaderBytes + num_images * shape->num_pixels(), num_images));
  RETURN_IF_ERROR(CheckSize(*labels, kLabelsHeaderBytes + num_labels, num_labels));
  if (num_images != num_labels) {
    return absl::InvalidArgumentError(
        absl::StrCat(labels->path(), ": ", num_labels, " labels at offset 4, but ", images->path(),
                     " has ", num_images, " images; take both from the same data set"));
  }
  ImageFile file;
  file.images = images;
  file.image_offset = kImagesHeaderBytes;
  file.image_stride = shape->num_pixels();
  file.label_places = {.file = labels, .offset = kLabelsHeaderBytes};
  ASSIGN_OR_RETURN(file.labels, ReadLabels(file.label_places, num_labels));
  return file;
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
        absl::StrCat(heldout.images->path(), ": images are ", heldout_shape.ToString(),
                     " at offset 8, but ", train.images->path(), " has ", corpus.shape.ToString()));
  }
  corpus.train.push_back(std::move(train));
  corpus.heldout.push_back(std::move(heldout));
  return corpus;
}

bool LooksLikeIdxFolder(const std::string& folder) {
  for (const char* name : kFileNames) {
    const std::string plain = absl::StrCat(folder, "/", name);
    if (IsFile(plain) || IsFile(absl::StrCat(plain, ".gz"))) return true;
  }
  return false;
}

std::string IdxFileNames() {
  return "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
         "t10k-labels-idx1-ubyte, each with or without .gz";
}

}  // namespace lodestar
