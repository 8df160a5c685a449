// Errors as MPI has them: a class of the standard, and a code for each occurrence, which leads to
// its sentence (MPI_Error_string). The library throws Failure; guarded() is where a procedure turns
// it into a code and hands that to the error handler of the object it was called on.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "bindings/mpi/interface.h"

namespace tutti::mpi {

/// An error of a class of the standard (MPI_ERR_...), with a sentence. Without a sentence: a code
/// that a function of the program returned, which is handed on as it is.
class Failure : public std::exception {
 public:
  Failure(int error_class, std::string sentence)
      : error_class_(error_class), sentence_(std::move(sentence)) {}
  int error_class() const { return error_class_; }
  const char* what() const noexcept override { return sentence_.c_str(); }

 private:
  int error_class_;
  std::string sentence_;
};

/// throw Failure with a formatted sentence: fail(MPI_ERR_COUNT, "the count is {}", count).
template <class... Arguments>
[[noreturn]] void fail(int error_class, fmt::format_string<Arguments...> text,
                       Arguments&&... arguments) {
  throw Failure(error_class, fmt::format(text, std::forward<Arguments>(arguments)...));
}

/// A new code of the class, with the sentence. The last 1,024 sentences are kept; an older code has
/// its class's text.
int new_error_code(int error_class, std::string sentence);
/// The class of a code; MPI_ERR_UNKNOWN for a number that is neither.
int error_class_of(int code);
/// The text of a class or code, as MPI_Error_string gives it, of at most MPI_MAX_ERROR_STRING - 1
/// characters.
std::string error_text(int code);
/// The largest class or code that is in use: the attribute MPI_LASTUSEDCODE.
int last_used_code();

/// What has an error handler. An error without an object belongs to MPI_COMM_SELF; while that has
/// the handler that it began with, to MPI_COMM_WORLD, as before MPI 4: programs of that time set no
/// other.
struct On {
  enum class Kind { comm, win, session, file } kind = Kind::comm;
  std::uintptr_t handle = bits_of(MPI_COMM_SELF);
  bool named = true;  // by the program

  On() : named(false) {}
  On(MPI_Comm comm) : handle(bits_of(comm)) {}                // NOLINT: a handle is meant
  On(MPI_Win win) : kind(Kind::win), handle(bits_of(win)) {}  // NOLINT
  On(MPI_Session session) : kind(Kind::session), handle(bits_of(session)) {}  // NOLINT
  On(MPI_File file) : kind(Kind::file), handle(bits_of(file)) {}              // NOLINT
};

/// Hands a code to the object's error handler. Returns the code, unless the handler ends the
/// program.
int raise_error(On on, int code);

/// The code for the exception that is being handled: a Failure's class, tutti::Error's nearest
/// class, MPI_ERR_NO_MEM or MPI_ERR_INTERN; its sentence begins with the procedure's name.
int code_of_current_exception(const char* procedure);

/// Runs the body of a procedure: MPI_SUCCESS, or what raise_error() returns after an exception.
template <class Body>
int guarded(const char* procedure, On on, Body&& body) noexcept {
  int code = MPI_SUCCESS;
  try {
    body();
    return MPI_SUCCESS;
  } catch (...) {
    code = code_of_current_exception(procedure);
  }
  return raise_error(on, code);
}

}  // namespace tutti::mpi
