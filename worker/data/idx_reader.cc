#include "worker/data/idx_reader.h"

#include <array>
#include <cstdint>
#include <utility>

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

int64_t BigEndianWord(const FileBytes& file, size_t offset) {
  const uint8_t* b = file.bytes().data() + offset;
  return int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 | int64_t{b[3]};
}

absl::Status CheckMagic(const FileBytes& file, uint32_t magic, int64_t header_bytes) {
  const int64_t num_bytes = static_cast<int64_t>(file.bytes().size());
  if (num_bytes < header_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ends at offset ", num_bytes,
                                                   " inside its header of ", header_bytes,
                                                   " bytes"));
  }
  if (BigEndianWord(file, 0) == magic) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: magic number 0x%08x at offset 0, expected 0x%08x (IDX, unsigned bytes)",
                      file.path(), BigEndianWord(file, 0), magic));
}

absl::Status CheckSize(const FileBytes& file, int64_t wanted_bytes, int64_t count) {
  const int64_t num_bytes = static_cast<int64_t>(file.bytes().size());
  if (num_bytes == wanted_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      file.path(), ": the header at offset 4 tells ", count, " entries, that is ", wanted_bytes,
      " bytes, but the file ", num_bytes < wanted_bytes ? "ends at offset " : "has ", num_bytes));
}

absl::StatusOr<const FileBytes*> OpenPart(const std::string& folder, const std::string& name,
                                          ImageCorpus* corpus) {
  const std::string plain = absl::StrCat(folder, "/", name);
  const std::string compressed = absl::StrCat(plain, ".gz");
  absl::StatusOr<FileBytes> file = absl::NotFoundError(
      absl::StrCat(plain, ": no such file, nor ", compressed, "; IDX data is ", IdxFileNames()));
  if (IsFile(plain)) {
    file = FileBytes::Map(plain);
  } else if (IsFile(compressed)) {
    file = FileBytes::Inflate(compressed);
  }
  if (!file.ok()) return file.status();
  corpus->owned.push_back(std::make_unique<FileBytes>(*std::move(file)));
  return corpus->owned.back().get();
}

// Reads the pair of files `images_name`, `labels_name`; sets *shape.
absl::StatusOr<ImageFile> OpenPair(const std::string& folder, const char* images_name,
                                   const char* labels_name, ImageCorpus* corpus,
                                   ImageShape* shape) {
  ASSIGN_OR_RETURN(const FileBytes* images, OpenPart(folder, images_name, corpus));
  ASSIGN_OR_RETURN(const FileBytes* labels, OpenPart(folder, labels_name, corpus));
  RETURN_IF_ERROR(CheckMagic(*images, kImagesMagic, kImagesHeaderBytes));
  RETURN_IF_ERROR(CheckMagic(*labels, kLabelsMagic, kLabelsHeaderBytes));
  *shape = {1, BigEndianWord(*images, 8), BigEndianWord(*images, 12)};
  if (shape->height < 1 || shape->height > kMaxImageSide || shape->width < 1 ||
      shape->width > kMaxImageSide) {
    return absl::InvalidArgumentError(
        absl::StrCat(images->path(), ": images of ", shape->height, "x", shape->width,
                     " pixels at offset 8, expected sides of 1 to ", kMaxImageSide));
  }
  const int64_t num_images = BigEndianWord(*images, 4);
  const int64_t num_labels = BigEndianWord(*labels, 4);
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
  file.labels = labels;
  file.label_offset = kLabelsHeaderBytes;
  file.label_stride = 1;
  file.num_images = num_images;
  return file;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(const std::string& folder,
                                                        const ImageInput& input) {
  ImageCorpus corpus;
  corpus.format = "idx";
  ASSIGN_OR_RETURN(const ImageFile train,
                   OpenPair(folder, kFileNames[0], kFileNames[1], &corpus, &corpus.shape));
  ImageShape heldout_shape;
  ASSIGN_OR_RETURN(const ImageFile heldout,
                   OpenPair(folder, kFileNames[2], kFileNames[3], &corpus, &heldout_shape));
  if (heldout_shape != corpus.shape) {
    return absl::InvalidArgumentError(
        absl::StrCat(heldout.images->path(), ": images are ", heldout_shape.ToString(),
                     " at offset 8, but ", train.images->path(), " has ", corpus.shape.ToString()));
  }
  corpus.train.push_back(train);
  corpus.heldout.push_back(heldout);
  return MakeImageDataset(std::move(corpus), input);
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
