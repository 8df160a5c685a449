#include "bindings/mpi/errhandler.h"

#include "bindings/mpi/procedures.h"
#include "core/settings.h"

namespace tutti::mpi {
namespace {

using HandlerRef = std::shared_ptr<ErrorHandler>;

// The handles of two handlers, as the program's header has them.
MPI_Errhandler errors_abort() { return has_intel_values() ? MPI_ERRORS_RETURN : MPI_ERRORS_ABORT; }
MPI_Errhandler errors_return() { return has_intel_values() ? MPI_ERRORS_ABORT : MPI_ERRORS_RETURN; }

/// Files that are not open have one handler: MPI_FILE_NULL's. There are no others, as files are
/// refused.
HandlerRef& file_handler() {
  static auto* handler = new HandlerRef(error_handlers().share(errors_return()));
  return *handler;
}

HandlerRef* place_of(On on) {
  switch (on.kind) {
    case On::Kind::comm:
      return handler_place(handle_of<MPI_Comm>(on.handle));
    case On::Kind::win:
      return handler_place(handle_of<MPI_Win>(on.handle));
    case On::Kind::session:
      return handler_place(handle_of<MPI_Session>(on.handle));
    case On::Kind::file:
      return on.handle == bits_of(MPI_FILE_NULL) ? &file_handler() : nullptr;
  }
  return nullptr;
}

int invalid_class(On::Kind kind) {
  switch (kind) {
    case On::Kind::win:
      return MPI_ERR_WIN;
    case On::Kind::session:
      return MPI_ERR_SESSION;
    case On::Kind::file:
      return MPI_ERR_FILE;
    default:
      return MPI_ERR_COMM;
  }
}

HandlerRef& valid_place(On on) {
  HandlerRef* place = place_of(on);
  if (place == nullptr) fail(invalid_class(on.kind), "the handle is null, was freed, or is none");
  return *place;
}

HandlerRef shared_handler(MPI_Errhandler handle) {
  HandlerRef handler = error_handlers().share(handle);
  if (handler == nullptr) fail(MPI_ERR_ERRHANDLER, "the error handler is null, or was freed");
  return handler;
}

int set_call(const char* procedure, On on, MPI_Errhandler handle) {
  return guarded(procedure, on, [&] {
    HandlerRef& place = valid_place(on);
    HandlerRef handler = shared_handler(handle);
    if (handler->action == ErrorHandler::Action::call && handler->kind != on.kind) {
      fail(MPI_ERR_ERRHANDLER, "the error handler was made for another kind of object");
    }
    place = std::move(handler);
  });
}

int get_call(const char* procedure, On on, MPI_Errhandler* handle) {
  return guarded(procedure, on, [&] {
    const HandlerRef& handler = valid_place(on);
    for (const MPI_Errhandler known : {MPI_ERRORS_ARE_FATAL, MPI_ERRORS_ABORT, MPI_ERRORS_RETURN}) {
      if (error_handlers().find(known) == handler.get()) {
        *handle = known;
        return;
      }
    }
    *handle = error_handlers().add(handler);  // which the program frees
  });
}

int call_call(const char* procedure, On on, int code) {
  return guarded(procedure, on, [&] {
    valid_place(on);
    raise_error(on, code);
  });
}

template <class Handle, class Function>
int create_call(const char* procedure, On::Kind kind, Function* function, MPI_Errhandler* handle) {
  return guarded(procedure, On(), [&] {
    if (function == nullptr || handle == nullptr)
      fail(MPI_ERR_ARG, "the function, or the place, is a null pointer");
    *handle = error_handlers().add(
        std::make_shared<ErrorHandler>(kind, [function](std::uintptr_t object, int* code) {
          auto typed = handle_of<Handle>(object);
          function(&typed, code);
        }));
  });
}

}  // namespace

bool has_intel_values() {
#if defined(TUTTI_MPI_MPICH) || defined(TUTTI_MPI_OPENMPI)
  return false;  // of the standard's interface alone
#else
  static const bool has = setting_boolean("TUTTI_MPI_INTEL");
  return has;
#endif
}

Handles<ErrorHandler, MPI_Errhandler>& error_handlers() {
  using All = Handles<ErrorHandler, MPI_Errhandler>;
  static All& handlers = []() -> All& {
    auto* made = new All;
    made->predefine(MPI_ERRORS_ARE_FATAL,
                    std::make_shared<ErrorHandler>(ErrorHandler::Action::fatal));
    made->predefine(errors_abort(), std::make_shared<ErrorHandler>(ErrorHandler::Action::abort));
    made->predefine(errors_return(),
                    std::make_shared<ErrorHandler>(ErrorHandler::Action::give_back));
    return *made;
  }();
  return handlers;
}

int raise_error(On on, int code) {
  HandlerRef* place = place_of(on);
  if (place == nullptr) {  // an invalid handle has no handler of its own
    on = on.kind == On::Kind::file ? On(MPI_FILE_NULL) : On();
    place = place_of(on);
  }
  if (place == nullptr)
    abort_program(on, true, code, error_text(code));  // before MPI_Init or after MPI_Finalize
  if (!on.named && *place == error_handlers().share(MPI_ERRORS_ARE_FATAL)) {
    if (HandlerRef* world = handler_place(MPI_COMM_WORLD)) {
      on = On(MPI_COMM_WORLD);
      place = world;
    }
  }
  const HandlerRef handler = *place;  // which may replace itself
  switch (handler->action) {
    case ErrorHandler::Action::fatal:
      abort_program(on, true, code, error_text(code));
    case ErrorHandler::Action::abort:
      abort_program(on, false, code, error_text(code));
    case ErrorHandler::Action::give_back:
      break;
    case ErrorHandler::Action::call:
      handler->function(on.handle, &code);
  }
  return code;
}

int MPI_Comm_create_errhandler(MPI_Comm_errhandler_function* function, MPI_Errhandler* handle) {
  return create_call<MPI_Comm>("MPI_Comm_create_errhandler", On::Kind::comm, function, handle);
}
int MPI_Win_create_errhandler(MPI_Win_errhandler_function* function, MPI_Errhandler* handle) {
  return create_call<MPI_Win>("MPI_Win_create_errhandler", On::Kind::win, function, handle);
}
int MPI_File_create_errhandler(MPI_File_errhandler_function* function, MPI_Errhandler* handle) {
  return create_call<MPI_File>("MPI_File_create_errhandler", On::Kind::file, function, handle);
}
int MPI_Session_create_errhandler(MPI_Session_errhandler_function* function,
                                  MPI_Errhandler* handle) {
  return create_call<MPI_Session>("MPI_Session_create_errhandler", On::Kind::session, function,
                                  handle);
}

int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handle) {
  return set_call("MPI_Comm_set_errhandler", comm, handle);
}
int MPI_Win_set_errhandler(MPI_Win win, MPI_Errhandler handle) {
  return set_call("MPI_Win_set_errhandler", win, handle);
}
int MPI_File_set_errhandler(MPI_File file, MPI_Errhandler handle) {
  return set_call("MPI_File_set_errhandler", file, handle);
}
int MPI_Session_set_errhandler(MPI_Session session, MPI_Errhandler handle) {
  return set_call("MPI_Session_set_errhandler", session, handle);
}

int MPI_Comm_get_errhandler(MPI_Comm comm, MPI_Errhandler* handle) {
  return get_call("MPI_Comm_get_errhandler", comm, handle);
}
int MPI_Win_get_errhandler(MPI_Win win, MPI_Errhandler* handle) {
  return get_call("MPI_Win_get_errhandler", win, handle);
}
int MPI_File_get_errhandler(MPI_File file, MPI_Errhandler* handle) {
  return get_call("MPI_File_get_errhandler", file, handle);
}
int MPI_Session_get_errhandler(MPI_Session session, MPI_Errhandler* handle) {
  return get_call("MPI_Session_get_errhandler", session, handle);
}

int MPI_Comm_call_errhandler(MPI_Comm comm, int code) {
  return call_call("MPI_Comm_call_errhandler", comm, code);
}
int MPI_Win_call_errhandler(MPI_Win win, int code) {
  return call_call("MPI_Win_call_errhandler", win, code);
}
int MPI_File_call_errhandler(MPI_File file, int code) {
  return call_call("MPI_File_call_errhandler", file, code);
}
int MPI_Session_call_errhandler(MPI_Session session, int code) {
  return call_call("MPI_Session_call_errhandler", session, code);
}

int MPI_Errhandler_free(MPI_Errhandler* handle) {
  return guarded("MPI_Errhandler_free", On(), [&] {
    if (handle == nullptr) fail(MPI_ERR_ARG, "the place of the handle is a null pointer");
    shared_handler(*handle);
    // MPI_..._get_errhandler gives predefined ones, too, which the program then frees.
    if (!error_handlers().is_predefined(*handle)) error_handlers().remove(*handle);
    *handle = MPI_ERRHANDLER_NULL;
  });
}

// --- What MPI-1 called them

int MPI_Errhandler_create(MPI_Comm_errhandler_function* function, MPI_Errhandler* handle) {
  return MPI_Comm_create_errhandler(function, handle);
}
int MPI_Errhandler_set(MPI_Comm comm, MPI_Errhandler handle) {
  return MPI_Comm_set_errhandler(comm, handle);
}
int MPI_Errhandler_get(MPI_Comm comm, MPI_Errhandler* handle) {
  return MPI_Comm_get_errhandler(comm, handle);
}

}  // namespace tutti::mpi
