// SPDX-License-Identifier: Apache-2.0

#include "worker/data/token_file_detection.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::data {
namespace {

constexpr size_t kWordHeaderBytes = 1024;
constexpr int32_t kNemoMagic = 278895051;
constexpr int32_t kNemoVersion = 1;
constexpr absl::string_view kNumpyMagic = "\x93NUMPY";
// The beginning of a file of PackedDataset, the format of lit-gpt and TinyLlama: a magic and
// version 1. It is followed by the code of a dtype (one byte) and the number of tokens per chunk
// (eight bytes).
constexpr absl::string_view kPackedMagic("LITPKDS\1\0\0\0\0\0\0\0", 15);
constexpr size_t kPackedHeaderBytes = 24;
// Limit of the size of vocabularies. All known vocabularies have fewer tokens.
constexpr uint32_t kVocabularyLimit = uint32_t{1} << 21;

struct LlmcHeader {
  int32_t magic = 0;
  int32_t version = 0;
  absl::string_view tokenizer;
  int64_t token_bytes = 0;
  int64_t vocabulary = 0;
};

constexpr LlmcHeader kLlmcHeaders[] = {
    {20240520, 1, "GPT-2", 2, 50257},
    {20240801, 7, "Llama 3", 4, 128256},
};

// A magic number of llm.c for files that have no tokens.
struct OtherFile {
  int32_t magic = 0;
  absl::string_view what;
};

constexpr OtherFile kOthers[] = {
    {20240522, "questions of an evaluation, not a corpus"},
    {20240326, "a model's weights"},
    {20240327, "a model's weights and activations"},
    {20240328, "a tokenizer"},
};

template <typename Record>
const Record* FindMagic(absl::Span<const Record> records, int32_t magic) {
  const auto match = std::find_if(records.begin(), records.end(),
                                  [magic](const Record& record) { return record.magic == magic; });
  return match == records.end() ? nullptr : &*match;
}

int32_t HeaderWord(absl::Span<const uint8_t> start, size_t index) {
  int32_t word;
  std::memcpy(&word, start.data() + index * sizeof(word), sizeof(word));
  return word;
}

bool StartsWithMagic(absl::Span<const uint8_t> start, absl::string_view magic) {
  return start.size() >= magic.size() && std::memcmp(start.data(), magic.data(), magic.size()) == 0;
}

bool HasPackedHeader(absl::Span<const uint8_t> start) {
  return start.size() >= kPackedHeaderBytes && StartsWithMagic(start, kPackedMagic);
}

bool HasKnownMagic(int32_t magic) {
  return magic == kNemoMagic || FindMagic<LlmcHeader>(kLlmcHeaders, magic) != nullptr ||
         FindMagic<OtherFile>(kOthers, magic) != nullptr;
}

// Returns the advice to convert tokens with Python to a .npy file of uint32, whose header says the
// width. `expression` is the Python code that reads the tokens.
std::string ConvertWith(absl::string_view expression) {
  return absl::StrCat("convert it in Python with numpy.save('tokens.npy', ", expression,
                      ".astype('<u4')), and give that file");
}

absl::Status WrongSize(const std::string& path, int64_t num_tokens, int64_t token_bytes,
                       int64_t wanted_bytes, int64_t num_bytes) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": the header says ", num_tokens, " tokens of ", token_bytes, " bytes, which are ",
      wanted_bytes, " bytes, but the file has ", num_bytes, "; copy it or make it again"));
}

// Returns the command that copies `path` without its first `header_bytes` bytes.
std::string CutWith(const std::string& path, size_t header_bytes) {
  return absl::StrCat("cut the header off with tail -c +", header_bytes + 1, " ", path,
                      " > tokens.bin, and give that file");
}

// Returns an error that says how to convert a file of lit-gpt. The advice depends on the dtype in
// the file's header.
absl::Status RefusePacked(const std::string& path, absl::Span<const uint8_t> start) {
  struct Dtype {
    int code;
    absl::string_view numpy;
  };
  static constexpr Dtype kOthers[] = {{1, "<u1"}, {2, "<i1"}, {3, "<i2"},
                                      {5, "<i8"}, {6, "<f4"}, {7, "<f8"}};
  const int code = start[kPackedMagic.size()];
  const auto other = std::find_if(std::begin(kOthers), std::end(kOthers),
                                  [code](const Dtype& dtype) { return dtype.code == code; });
  std::string next = CutWith(path, kPackedHeaderBytes);
  if (code == 4) absl::StrAppend(&next, " with --token_bytes=4");
  if (other != std::end(kOthers)) {
    next = ConvertWith(absl::StrCat("numpy.fromfile('", path, "', '", other->numpy,
                                    "', offset=", kPackedHeaderBytes, ")"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path, " has the header of lit-gpt's PackedDataset (LITPKDS, ",
                   kPackedHeaderBytes, " bytes), which Lodestar cannot read; ", next));
}

// Parses a header of 256 int32 with a known magic number.
absl::StatusOr<TokenFileFacts> ParseWordHeader(const std::string& path,
                                               absl::Span<const uint8_t> start, int64_t num_bytes) {
  const int32_t magic = HeaderWord(start, 0);
  if (const OtherFile* other = FindMagic<OtherFile>(kOthers, magic); other != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": magic number ", magic,
                                                   " at offset 0 means that llm.c wrote ",
                                                   other->what, "; give a file of tokens"));
  }
  if (start.size() < kWordHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ends at offset ", num_bytes,
                                                   " inside its header of ", kWordHeaderBytes,
                                                   " bytes; copy or make it again"));
  }
  TokenFileFacts facts = {.header_bytes = kWordHeaderBytes};
  int32_t version = kNemoVersion;
  if (const LlmcHeader* llmc = FindMagic<LlmcHeader>(kLlmcHeaders, magic); llmc != nullptr) {
    facts.writer = "llm.c";
    facts.tokenizer = std::string(llmc->tokenizer);
    facts.vocabulary = llmc->vocabulary;
    facts.token_bytes = llmc->token_bytes;
    version = llmc->version;
  } else {
    facts.writer = "NeMo";
    facts.token_bytes = HeaderWord(start, 3);
  }
  if (HeaderWord(start, 1) != version) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the header of ", facts.writer, " has version ", HeaderWord(start, 1),
                     " at offset 4, but Lodestar reads only version ", version,
                     "; make the file again with version ", version));
  }
  if (facts.token_bytes != 2 && facts.token_bytes != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": the header of NeMo says ", facts.token_bytes,
                     " bytes per token at offset 12, but must say 2 or 4; make the file again"));
  }
  const int64_t num_tokens = HeaderWord(start, 2);
  const int64_t wanted_bytes = facts.header_bytes + num_tokens * facts.token_bytes;
  if (num_tokens < 0 || wanted_bytes != num_bytes) {
    return WrongSize(path, num_tokens, facts.token_bytes, wanted_bytes, num_bytes);
  }
  return facts;
}

// Returns the text after `'key':` in NumPy's description, without leading blanks. Empty means that
// the key is missing.
absl::string_view NumpyField(absl::string_view description, absl::string_view key) {
  const std::string quoted = absl::StrCat("'", key, "':");
  const size_t at = description.find(quoted);
  if (at == absl::string_view::npos) return "";
  return absl::StripLeadingAsciiWhitespace(description.substr(at + quoted.size()));
}

// Parses NumPy's header: magic number, version, length, and a dict of Python such as {'descr':
// '<u2', 'fortran_order': False, 'shape': (4000,), }.
absl::StatusOr<TokenFileFacts> ParseNumpyHeader(const std::string& path,
                                                absl::Span<const uint8_t> start,
                                                int64_t num_bytes) {
  // The offset of the length: the magic number and two bytes of version come before it.
  constexpr size_t kLengthOffset = 8;
  const size_t length_bytes = start.size() > 6 && start[6] == 1 ? 2 : 4;
  size_t header_bytes = kLengthOffset + length_bytes;
  for (size_t i = 0; i < length_bytes && kLengthOffset + i < start.size(); ++i) {
    header_bytes += size_t{start[kLengthOffset + i]} << (8 * i);
  }
  if (header_bytes > start.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": NumPy's header of ", header_bytes, " bytes does not fit into the first ",
        start.size(), " bytes of the file; copy or make it again"));
  }
  const absl::string_view description(
      reinterpret_cast<const char*>(start.data()) + kLengthOffset + length_bytes,
      header_bytes - kLengthOffset - length_bytes);
  const absl::string_view dtype = NumpyField(description, "descr");
  absl::string_view shape = NumpyField(description, "shape");
  shape = shape.substr(0, shape.find(')') + 1);
  TokenFileFacts facts = {.writer = "NumPy", .header_bytes = static_cast<int64_t>(header_bytes)};
  if (absl::StartsWith(dtype, "'<u2'")) facts.token_bytes = 2;
  // A negative int32 becomes a uint32 that is outside every vocabulary, which is an error later.
  if (absl::StartsWith(dtype, "'<u4'") || absl::StartsWith(dtype, "'<i4'")) facts.token_bytes = 4;
  int64_t num_tokens = 0;
  const bool is_list = absl::StartsWith(shape, "(") && absl::EndsWith(shape, ",)") &&
                       absl::SimpleAtoi(shape.substr(1, shape.size() - 3), &num_tokens);
  if (facts.token_bytes == 0 || !is_list) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is a NumPy array of dtype ", PeerText(dtype.substr(0, dtype.find(','))),
        " and shape ", PeerText(shape), ". Tokens must be one list of '<u2', '<u4' or '<i4'; ",
        ConvertWith(absl::StrCat("numpy.load('", path, "').ravel()"))));
  }
  const int64_t wanted_bytes = facts.header_bytes + num_tokens * facts.token_bytes;
  if (num_tokens < 0 || wanted_bytes != num_bytes) {
    return WrongSize(path, num_tokens, facts.token_bytes, wanted_bytes, num_bytes);
  }
  return facts;
}

// Returns true if the first 1024 bytes are a header of an unknown program: a few numbers, then
// zeros, then data. Real tokens do not begin like this: no text begins with hundreds of equal
// tokens.
bool LooksLikeUnknownHeader(absl::Span<const uint8_t> start, int64_t num_bytes) {
  constexpr size_t kMostFieldBytes = 64;
  if (start.size() < kWordHeaderBytes || num_bytes <= int64_t{kWordHeaderBytes}) return false;
  const auto fields = start.subspan(0, kMostFieldBytes);
  const auto rest = start.subspan(kMostFieldBytes, kWordHeaderBytes - kMostFieldBytes);
  const auto is_zero = [](uint8_t byte) { return byte == 0; };
  const auto behind = start.subspan(kWordHeaderBytes);
  return HeaderWord(fields, 0) != 0 && std::all_of(rest.begin(), rest.end(), is_zero) &&
         !std::all_of(behind.begin(), behind.end(), is_zero);
}

// Finds out which type the numbers of a file without a header can have. The file is read in groups
// of 8 bytes. Groups that are zero or a filler, such as -1, are ignored. A type is possible if
// nearly all groups fit it. The rest may be a short header.
class NumberCensus {
 public:
  // Requires: the offset of `bytes` in the file is a multiple of 8.
  void Add(absl::Span<const uint8_t> bytes) {
    for (size_t at = 0; at + kGroupBytes <= bytes.size(); at += kGroupBytes) {
      AddGroup(bytes.data() + at);
    }
  }

  // A type whose numbers cannot be read as tokens directly, such as "int64". `dtype` is its name in
  // NumPy.
  struct OtherType {
    absl::string_view name;
    absl::string_view dtype;
    bool has_negative = false;
  };
  std::optional<OtherType> Other() const {
    if (!HasEnough()) return std::nullopt;
    if (IsNearlyAll(num_int64_, num_groups_)) return OtherType{"int64", "<i8", has_negative_};
    if (IsNearlyAll(num_swapped_int64_, num_groups_)) {
      return OtherType{"big-endian int64", ">i8", has_negative_};
    }
    if (IsNearlyAll(num_float32_, num_groups_)) return OtherType{"float32", "<f4"};
    if (IsNearlyAll(num_float64_, num_groups_)) return OtherType{"float64", "<f8"};
    if (IsNearlyAll(num_swapped_words_inside_, num_words_) &&
        IsMany(num_words_ - num_words_inside_)) {
      return OtherType{"big-endian uint32", ">u4", has_negative_};
    }
    if (LooksLikeUint32()) {
      if (has_negative_) return OtherType{"int32", "<i4", true};
      return std::nullopt;
    }
    if (LooksLikeSwappedUint16()) return OtherType{"big-endian uint16", ">u2"};
    return std::nullopt;
  }

  void Fill(TokenFileFacts* facts) const {
    facts->is_never_uint32 = !IsNearlyAll(num_words_inside_, num_words_);
    if (!HasEnough()) return;
    facts->is_never_uint16 = HasOddHalvesOfZero();
    facts->looks_like_uint32 = LooksLikeUint32();
  }

 private:
  using ByteCounts = std::array<int64_t, 256>;

  static constexpr size_t kGroupBytes = 8;
  static constexpr int64_t kFewestGroups = 8;
  static constexpr uint16_t kMostUpperHalf = (kVocabularyLimit >> 16) - 1;
  // Fillers are the numbers from here to -1. Programs use them for tokens that a loss ignores, such
  // as -100.
  static constexpr int32_t kLeastFiller = -1000;

  bool HasEnough() const { return num_groups_ >= kFewestGroups && num_words_ >= kFewestGroups; }
  // Returns true if `count` is nearly `total`. 2 % of `total` may be missing. In a small total, up
  // to 8 may be missing, but at most total / 16: they may be a short header.
  static bool IsNearlyAll(int64_t count, int64_t total) {
    return total - count <= std::max(total / 50, std::min<int64_t>(8, total / 16));
  }
  bool IsMany(int64_t num_words) const { return 4 * num_words >= num_words_; }

  bool HasOddHalvesOfZero() const {
    return IsNearlyAll(num_zero_odd_halves_, num_words_) && IsMany(num_even_halves_above_zero_);
  }
  bool LooksLikeUint32() const {
    return HasOddHalvesOfZero() ||
           (IsNearlyAll(num_words_inside_, num_words_) && IsMany(num_high_even_halves_));
  }

  // Frequent tokens have small numbers, so upper bytes vary less than lower bytes. In text of GPT-2
  // the difference is 3 bits of entropy and more. Uniformly random tokens have no difference.
  bool LooksLikeSwappedUint16() const {
    constexpr double kLeastDifference = 1.5;  // In bits.
    constexpr int64_t kFewestTokens = 128;
    return 2 * num_words_ >= kFewestTokens &&
           Entropy(second_bytes_) - Entropy(first_bytes_) > kLeastDifference;
  }
  static double Entropy(const ByteCounts& counts) {
    const double total = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    double bits = 0;
    for (const int64_t count : counts) {
      if (count > 0) bits -= count / total * std::log2(count / total);
    }
    return bits;
  }

  template <typename Number>
  static Number Load(const uint8_t* bytes) {
    Number number;
    std::memcpy(&number, bytes, sizeof(number));
    return number;
  }
  // Returns true if the floating-point number at `bytes` is 0, or a whole number from 1 up that may
  // be a token. Compares bits first. Otherwise small integers would count as 0 if the processor
  // flushes denormals.
  template <typename Float, typename Bits>
  static bool IsToken(const uint8_t* bytes) {
    constexpr Float kOne = 1;
    const Bits bits = Load<Bits>(bytes);
    const Float number = Load<Float>(bytes);
    return bits == 0 || (bits >= Load<Bits>(reinterpret_cast<const uint8_t*>(&kOne)) &&
                         number < static_cast<Float>(kVocabularyLimit) &&
                         number == std::floor(number) && number > 0);
  }
  static bool IsFiller(int64_t number) { return number >= kLeastFiller && number < 0; }

  void AddGroup(const uint8_t* group) {
    const int64_t number = Load<int64_t>(group);
    const int64_t swapped = static_cast<int64_t>(__builtin_bswap64(number));
    if (number == 0) return;
    if (IsFiller(number) || IsFiller(swapped)) {
      has_negative_ = true;
      return;
    }
    ++num_groups_;
    const auto is_inside = [](int64_t token) {
      return token >= 0 && token < int64_t{kVocabularyLimit};
    };
    num_int64_ += is_inside(number);
    num_swapped_int64_ += is_inside(swapped);
    num_float32_ += IsToken<float, uint32_t>(group) && IsToken<float, uint32_t>(group + 4);
    num_float64_ += IsToken<double, uint64_t>(group);
    AddWord(group);
    AddWord(group + 4);
  }

  void AddWord(const uint8_t* bytes) {
    const uint32_t word = Load<uint32_t>(bytes);
    const uint32_t swapped = __builtin_bswap32(word);
    if (IsFiller(static_cast<int32_t>(word)) || IsFiller(static_cast<int32_t>(swapped))) {
      has_negative_ = true;
      return;
    }
    ++num_words_;
    num_words_inside_ += word < kVocabularyLimit;
    num_swapped_words_inside_ += swapped < kVocabularyLimit;
    const auto even = Load<uint16_t>(bytes);
    num_even_halves_above_zero_ += even > 0;
    num_high_even_halves_ += even > kMostUpperHalf;
    num_zero_odd_halves_ += Load<uint16_t>(bytes + 2) == 0;
    for (const uint8_t* token : {bytes, bytes + 2}) {
      ++first_bytes_[token[0]];
      ++second_bytes_[token[1]];
    }
  }

  int64_t num_groups_ = 0;
  int64_t num_int64_ = 0;
  int64_t num_swapped_int64_ = 0;
  int64_t num_float32_ = 0;
  int64_t num_float64_ = 0;
  int64_t num_words_ = 0;
  // Number of words of 4 bytes that may be tokens of a vocabulary.
  int64_t num_words_inside_ = 0;
  int64_t num_swapped_words_inside_ = 0;
  // Number of little-endian words of 4 bytes whose first uint16 half is above zero.
  int64_t num_even_halves_above_zero_ = 0;
  // Number of words whose first half is larger than the upper half of any token.
  int64_t num_high_even_halves_ = 0;
  // Number of words whose second half is zero.
  int64_t num_zero_odd_halves_ = 0;
  bool has_negative_ = false;
  // Counts of each value as the first byte, and as the second byte, of a uint16.
  ByteCounts first_bytes_ = {};
  ByteCounts second_bytes_ = {};
};

// Examines start, middle and end of a file without a header.
absl::StatusOr<TokenFileFacts> FactsOfNumbers(const DataFile& file) {
  constexpr int64_t kProbeBytes = int64_t{1} << 14;
  const int64_t last = std::max<int64_t>(0, file.num_bytes() - kProbeBytes) / 8 * 8;
  NumberCensus census;
  for (const int64_t begin : std::set<int64_t>{0, last / 16 * 8, last}) {
    std::vector<uint8_t> probe(std::min(kProbeBytes, file.num_bytes() - begin));
    RETURN_IF_ERROR(file.Read(begin, absl::MakeSpan(probe)));
    census.Add(probe);
  }
  const auto other = census.Other();
  // A header with an odd number of bytes makes little-endian numbers look big-endian. Then the size
  // of the file is odd too, and the caller reports that.
  const bool is_only_shifted =
      other.has_value() && other->dtype == ">u2" && file.num_bytes() % 2 != 0;
  if (other.has_value() && !is_only_shifted) {
    const std::string read =
        absl::StrCat("numpy.fromfile('", file.path(), "', '", other->dtype, "')");
    const bool may_be_tokens = other->dtype == ">u2";
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), " has no header, and its bytes look like ", other->name, " numbers",
        other->has_negative ? ", of which some are negative" : "",
        ". Tokens must be uint16 or uint32, little-endian; ",
        ConvertWith(other->has_negative ? absl::StrCat("(t := ", read, ")[t >= 0]") : read),
        may_be_tokens
            ? absl::StrCat(". If they are little-endian, write a file with a header: ",
                           "numpy.save('tokens.npy', numpy.fromfile('", file.path(), "', '<u2'))")
            : ""));
  }
  TokenFileFacts facts;
  census.Fill(&facts);
  return facts;
}

}  // namespace

bool HasTokenFileName(absl::string_view path) {
  return std::any_of(std::begin(kTokenFileSuffixes), std::end(kTokenFileSuffixes),
                     [path](absl::string_view suffix) { return absl::EndsWith(path, suffix); });
}

bool HasTokenHeader(absl::Span<const uint8_t> start) {
  return StartsWithMagic(start, kNumpyMagic) || HasPackedHeader(start) ||
         (start.size() >= 3 * sizeof(int32_t) && HasKnownMagic(HeaderWord(start, 0)));
}

absl::StatusOr<TokenFileFacts> DetectTokenFile(const DataFile& file) {
  // Reads enough for the header and the beginning of the data.
  std::vector<uint8_t> start(std::min<int64_t>(4 * kWordHeaderBytes, file.num_bytes()));
  RETURN_IF_ERROR(file.Read(0, absl::MakeSpan(start)));
  if (StartsWithMagic(start, kNumpyMagic))
    return ParseNumpyHeader(file.path(), start, file.num_bytes());
  if (HasPackedHeader(start)) return RefusePacked(file.path(), start);
  if (HasTokenHeader(start)) return ParseWordHeader(file.path(), start, file.num_bytes());
  if (LooksLikeUnknownHeader(start, file.num_bytes())) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": its first ", kWordHeaderBytes,
                     " bytes look like a header, but magic number ", HeaderWord(start, 0),
                     " at offset 0 is unknown (Lodestar knows llm.c and NeMo). If tokens ",
                     "follow the header, ", CutWith(file.path(), kWordHeaderBytes)));
  }
  return FactsOfNumbers(file);
}

}  // namespace lodestar::data
