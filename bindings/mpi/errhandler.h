// Error handlers: the three of the standard, and the program's functions.
#pragma once

#include <functional>
#include <memory>

#include "bindings/mpi/error.h"
#include "bindings/mpi/handle.h"

namespace tutti::mpi {

class ErrorHandler {
 public:
  enum class Action { fatal, abort, give_back, call };
  /// Of the program's functions: the handle (bits_of) that the error belongs to, and its code.
  using Function = std::function<void(std::uintptr_t handle, int* code)>;

  explicit ErrorHandler(Action does) : action(does) {}
  ErrorHandler(On::Kind of, Function calls)
      : action(Action::call), kind(of), function(std::move(calls)) {}

  const Action action;
  const On::Kind kind = On::Kind::comm;  // of what it may be the handler, if it calls a function
  const Function function;
};

/// Whether the program says (TUTTI_MPI_INTEL) that its header is Intel MPI's for the standard's
/// interface, which has other values for two handlers and three attributes (and for MPI_SEEK_...,
/// which are of files). Throws Error for a value that is neither yes nor no.
bool has_intel_values();

/// All error handlers; the predefined ones are there from the start.
Handles<ErrorHandler, MPI_Errhandler>& error_handlers();

/// The handler of an object: where it lies, so that the procedures of errhandler.cpp read and set
/// it. Null for a handle that is invalid. communicator.cpp, window.cpp and environment.cpp
/// (sessions) define these; a new object's handler is its parent's, or fatal (files: give_back).
std::shared_ptr<ErrorHandler>* handler_place(MPI_Comm comm);
std::shared_ptr<ErrorHandler>* handler_place(MPI_Win win);
std::shared_ptr<ErrorHandler>* handler_place(MPI_Session session);

/// Ends the program, as MPI_Abort does: of all ranks (`everybody`), or of those that share the
/// object. environment.cpp defines it.
[[noreturn]] void abort_program(On on, bool everybody, int code, const std::string& why);

}  // namespace tutti::mpi
