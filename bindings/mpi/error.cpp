#include "bindings/mpi/error.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <new>

#include "bindings/mpi/procedures.h"
#include "core/error.h"

namespace tutti::mpi {
namespace {

// A code with a sentence is a number above all classes: a mark, the number of the sentence (14
// bits), the class (15 bits). The program's own classes and codes follow MPI_ERR_LASTCODE; among
// the 15 bits they follow kOwn.
constexpr int kMark = 1 << 29;
constexpr int kMarks = ~(kMark - 1);  // of a code with a sentence, these bits are the mark
constexpr int kClassBits = 15;
constexpr int kClassMask = (1 << kClassBits) - 1;
constexpr int kSentenceMask = (1 << 14) - 1;
constexpr int kOwn = 1 << 14;

bool has_sentence(int code) { return (code & kMarks) == kMark; }
int class_field(int error_class) {
  return error_class > MPI_ERR_LASTCODE ? kOwn + (error_class - MPI_ERR_LASTCODE - 1) : error_class;
}
int class_in(int code) {
  const int field = code & kClassMask;
  return field >= kOwn ? MPI_ERR_LASTCODE + 1 + (field - kOwn) : field;
}
constexpr unsigned kSentences = 1024;  // that are kept

struct ClassText {
  int error_class;
  const char* name;
  const char* text;
};

// clang-format off
#define TUTTI_CLASS(name, text) {name, #name, text}
const ClassText kClasses[] = {
    TUTTI_CLASS(MPI_SUCCESS, "no error"),
    TUTTI_CLASS(MPI_ERR_BUFFER, "the address of a buffer is invalid"),
    TUTTI_CLASS(MPI_ERR_COUNT, "a count is invalid"),
    TUTTI_CLASS(MPI_ERR_TYPE, "a data type is invalid here"),
    TUTTI_CLASS(MPI_ERR_TAG, "a tag is invalid"),
    TUTTI_CLASS(MPI_ERR_COMM, "a communicator is invalid"),
    TUTTI_CLASS(MPI_ERR_RANK, "a rank is invalid"),
    TUTTI_CLASS(MPI_ERR_REQUEST, "a request is invalid"),
    TUTTI_CLASS(MPI_ERR_ROOT, "a root is invalid"),
    TUTTI_CLASS(MPI_ERR_GROUP, "a group is invalid"),
    TUTTI_CLASS(MPI_ERR_OP, "an operator is invalid, or not defined on the data type"),
    TUTTI_CLASS(MPI_ERR_TOPOLOGY, "the communicator has no such topology"),
    TUTTI_CLASS(MPI_ERR_DIMS, "dimensions are invalid"),
    TUTTI_CLASS(MPI_ERR_ARG, "an argument is invalid"),
    TUTTI_CLASS(MPI_ERR_UNKNOWN, "an unknown error"),
    TUTTI_CLASS(MPI_ERR_TRUNCATE, "a message is longer than the place for it"),
    TUTTI_CLASS(MPI_ERR_OTHER, "another error"),
    TUTTI_CLASS(MPI_ERR_INTERN, "a mistake inside of the library"),
    TUTTI_CLASS(MPI_ERR_PENDING, "the request is not complete"),
    TUTTI_CLASS(MPI_ERR_IN_STATUS, "the errors are in the statuses"),
    TUTTI_CLASS(MPI_ERR_ACCESS, "access is denied"),
    TUTTI_CLASS(MPI_ERR_AMODE, "the mode of opening a file is invalid"),
    TUTTI_CLASS(MPI_ERR_ASSERT, "an assertion is invalid"),
    TUTTI_CLASS(MPI_ERR_BAD_FILE, "the name of a file is invalid"),
    TUTTI_CLASS(MPI_ERR_BASE, "the base address is invalid"),
    TUTTI_CLASS(MPI_ERR_CONVERSION, "data could not be converted"),
    TUTTI_CLASS(MPI_ERR_DISP, "a displacement is invalid"),
    TUTTI_CLASS(MPI_ERR_DUP_DATAREP, "the representation of data is defined already"),
    TUTTI_CLASS(MPI_ERR_FILE_EXISTS, "the file exists"),
    TUTTI_CLASS(MPI_ERR_FILE_IN_USE, "the file is in use"),
    TUTTI_CLASS(MPI_ERR_FILE, "a file handle is invalid"),
    TUTTI_CLASS(MPI_ERR_INFO_KEY, "a hint's key is invalid"),
    TUTTI_CLASS(MPI_ERR_INFO_NOKEY, "there is no hint with this key"),
    TUTTI_CLASS(MPI_ERR_INFO_VALUE, "a hint's value is invalid"),
    TUTTI_CLASS(MPI_ERR_INFO, "an info object is invalid"),
    TUTTI_CLASS(MPI_ERR_IO, "reading or writing failed"),
    TUTTI_CLASS(MPI_ERR_KEYVAL, "an attribute's key is invalid"),
    TUTTI_CLASS(MPI_ERR_LOCKTYPE, "a kind of lock is invalid"),
    TUTTI_CLASS(MPI_ERR_NAME, "there is no service of this name"),
    TUTTI_CLASS(MPI_ERR_NO_MEM, "there is not enough memory"),
    TUTTI_CLASS(MPI_ERR_NOT_SAME, "an argument differs between ranks"),
    TUTTI_CLASS(MPI_ERR_NO_SPACE, "there is not enough space"),
    TUTTI_CLASS(MPI_ERR_NO_SUCH_FILE, "there is no such file"),
    TUTTI_CLASS(MPI_ERR_PORT, "the name of a port is invalid"),
    TUTTI_CLASS(MPI_ERR_QUOTA, "a quota is used up"),
    TUTTI_CLASS(MPI_ERR_READ_ONLY, "the file or file system is read only"),
    TUTTI_CLASS(MPI_ERR_RMA_ATTACH, "memory cannot be attached to the window"),
    TUTTI_CLASS(MPI_ERR_RMA_CONFLICT, "accesses to a window conflict"),
    TUTTI_CLASS(MPI_ERR_RMA_RANGE, "the target's memory is not part of the window"),
    TUTTI_CLASS(MPI_ERR_RMA_SHARED, "memory cannot be shared"),
    TUTTI_CLASS(MPI_ERR_RMA_SYNC, "a window is accessed outside of an epoch, or epochs do not match"),
    TUTTI_CLASS(MPI_ERR_SERVICE, "the service cannot be unpublished"),
    TUTTI_CLASS(MPI_ERR_SIZE, "a size is invalid"),
    TUTTI_CLASS(MPI_ERR_SPAWN, "processes could not be started"),
    TUTTI_CLASS(MPI_ERR_UNSUPPORTED_DATAREP, "the representation of data is not supported"),
    TUTTI_CLASS(MPI_ERR_UNSUPPORTED_OPERATION, "the operation is not supported"),
    TUTTI_CLASS(MPI_ERR_WIN, "a window is invalid"),
    TUTTI_CLASS(MPI_ERR_RMA_FLAVOR, "the kind of window is not right for this"),
    TUTTI_CLASS(MPI_ERR_PROC_ABORTED, "a process has ended"),
    TUTTI_CLASS(MPI_ERR_VALUE_TOO_LARGE, "a value is too large for its place"),
    TUTTI_CLASS(MPI_ERR_SESSION, "a session is invalid"),
    TUTTI_CLASS(MPI_ERR_ERRHANDLER, "an error handler is invalid"),
    TUTTI_CLASS(MPI_ERR_ABI, "the program's binary interface is another one"),
    TUTTI_CLASS(MPI_T_ERR_CANNOT_INIT, "the tools interface cannot be initialized"),
    TUTTI_CLASS(MPI_T_ERR_NOT_INITIALIZED, "the tools interface is not initialized"),
};
#undef TUTTI_CLASS
// clang-format on

/// What the program has added: a class is its own class.
struct Added {
  int error_class;
  std::string text;
  bool is_class;
};

struct Errors {
  std::mutex mutex;
  std::array<std::pair<unsigned, std::string>, kSentences> sentences;  // with their numbers
  unsigned next_sentence = 1;
  std::map<int, Added> added;
};

Errors& errors() {
  static auto* all = new Errors;
  return *all;
}

const ClassText* predefined_class(int error_class) {
  for (const ClassText& row : kClasses) {
    if (row.error_class == error_class) return &row;
  }
  return nullptr;
}

int class_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::invalid_argument:
    case ErrorCode::invalid_usage:
      return MPI_ERR_ARG;
    case ErrorCode::mismatch:
      return MPI_ERR_NOT_SAME;
    case ErrorCode::peer_lost:
    case ErrorCode::aborted:
      return MPI_ERR_PROC_ABORTED;
    case ErrorCode::internal:
      return MPI_ERR_INTERN;
    default:
      return MPI_ERR_OTHER;
  }
}

std::string cut(std::string text) {
  if (text.size() >= MPI_MAX_ERROR_STRING) text.resize(MPI_MAX_ERROR_STRING - 1);
  return text;
}

}  // namespace

int new_error_code(int error_class, std::string sentence) {
  Errors& all = errors();
  const std::lock_guard lock(all.mutex);
  const unsigned number = all.next_sentence;
  all.next_sentence = (number + 1) & kSentenceMask;
  all.sentences[number % kSentences] = {number, std::move(sentence)};
  return kMark | static_cast<int>(number << kClassBits) | class_field(error_class);
}

int error_class_of(int code) {
  if (has_sentence(code)) code = class_in(code);
  if (predefined_class(code) != nullptr) return code;
  Errors& all = errors();
  const std::lock_guard lock(all.mutex);
  const auto added = all.added.find(code);
  return added == all.added.end() ? MPI_ERR_UNKNOWN : added->second.error_class;
}

std::string error_text(int code) {
  Errors& all = errors();
  const std::lock_guard lock(all.mutex);
  std::string sentence;
  if (has_sentence(code)) {
    const unsigned number = (static_cast<unsigned>(code) >> kClassBits) & kSentenceMask;
    const auto& kept = all.sentences[number % kSentences];
    if (kept.first == number) sentence = kept.second;
    code = class_in(code);
  }
  if (const auto added = all.added.find(code); added != all.added.end()) {
    return cut(sentence.empty() ? added->second.text : sentence);
  }
  const ClassText* known = predefined_class(code);
  if (known == nullptr) known = predefined_class(MPI_ERR_UNKNOWN);
  return cut(fmt::format("{}: {}", known->name, sentence.empty() ? known->text : sentence));
}

int last_used_code() {
  Errors& all = errors();
  const std::lock_guard lock(all.mutex);
  return all.added.empty() ? MPI_ERR_LASTCODE : all.added.rbegin()->first;
}

int code_of_current_exception(const char* procedure) {
  try {
    throw;
  } catch (const Failure& failure) {
    if (*failure.what() == '\0') return failure.error_class();  // a code of the program
    return new_error_code(failure.error_class(), fmt::format("{}: {}", procedure, failure.what()));
  } catch (const Error& error) {
    return new_error_code(class_of(error), fmt::format("{}: {}", procedure, error.what()));
  } catch (const std::bad_alloc&) {
    return new_error_code(MPI_ERR_NO_MEM, fmt::format("{}: there is not enough memory", procedure));
  } catch (const std::exception& error) {
    return new_error_code(MPI_ERR_INTERN, fmt::format("{}: {}", procedure, error.what()));
  }
}

// --- The procedures

namespace {

int add_number(int error_class, bool is_class) {
  Errors& all = errors();
  const std::lock_guard lock(all.mutex);
  int number = MPI_ERR_LASTCODE + 1;  // the first that is free
  if (!all.added.empty()) {
    const int last = all.added.rbegin()->first;
    const bool full = static_cast<std::size_t>(last - MPI_ERR_LASTCODE) == all.added.size();
    if (full) {
      number = last + 1;
    } else {
      while (all.added.contains(number)) ++number;
    }
  }
  if (class_field(number) > kClassMask)
    fail(MPI_ERR_OTHER, "the program has added all {} classes and codes that there are", kOwn);
  all.added[number] = {is_class ? number : error_class, "", is_class};
  return number;
}

/// Throws if the program did not add the number, as a class or as a code.
std::map<int, Added>::iterator added_number(Errors& all, int number) {
  const auto place = all.added.find(number);
  if (place == all.added.end())
    fail(MPI_ERR_ARG, "{} is not a class or code that the program has added", number);
  return place;
}

void remove_number(int number, bool is_class) {
  Errors& all = errors();
  const std::lock_guard lock(all.mutex);
  const auto place = added_number(all, number);
  if (place->second.is_class != is_class)
    fail(MPI_ERR_ARG, "{} is not a {}", number, is_class ? "class" : "code");
  if (!place->second.text.empty()) fail(MPI_ERR_ARG, "{} still has its text", number);
  for (const auto& [code, added] : all.added) {
    if (is_class && code != number && added.error_class == number) {
      fail(MPI_ERR_ARG, "the class {} still has the code {}", number, code);
    }
  }
  all.added.erase(place);
}

}  // namespace

int MPI_Error_class(int code, int* error_class) {
  return guarded("MPI_Error_class", On(), [&] { *error_class = error_class_of(code); });
}

int MPI_Error_string(int code, char* string, int* length) {
  return guarded("MPI_Error_string", On(), [&] {
    const std::string text = error_text(code);
    text.copy(string, text.size());
    string[text.size()] = '\0';
    *length = static_cast<int>(text.size());
  });
}

int MPI_Add_error_class(int* error_class) {
  return guarded("MPI_Add_error_class", On(), [&] { *error_class = add_number(0, true); });
}

int MPI_Add_error_code(int error_class, int* code) {
  return guarded("MPI_Add_error_code", On(), [&] {
    if (error_class_of(error_class) != error_class)
      fail(MPI_ERR_ARG, "{} is not a class of errors", error_class);
    *code = add_number(error_class, false);
  });
}

int MPI_Add_error_string(int code, const char* string) {
  return guarded("MPI_Add_error_string", On(), [&] {
    Errors& all = errors();
    const std::lock_guard lock(all.mutex);
    added_number(all, code)->second.text = string;
  });
}

int MPI_Remove_error_class(int error_class) {
  return guarded("MPI_Remove_error_class", On(), [&] { remove_number(error_class, true); });
}

int MPI_Remove_error_code(int code) {
  return guarded("MPI_Remove_error_code", On(), [&] { remove_number(code, false); });
}

int MPI_Remove_error_string(int code) {
  return guarded("MPI_Remove_error_string", On(), [&] {
    Errors& all = errors();
    const std::lock_guard lock(all.mutex);
    auto& text = added_number(all, code)->second.text;
    if (text.empty()) fail(MPI_ERR_ARG, "{} has no text", code);
    text.clear();
  });
}

}  // namespace tutti::mpi
