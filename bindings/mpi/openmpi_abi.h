// Open MPI's binary interface (libmpi.so.40): types, and the constants with the values of Open MPI
// 5's mpi.h, which has those of Open MPI 4 and more. C++ alone: programs include Open MPI's own
// mpi.h.
//
// A handle is an address: of a slot of this library, or of a predefined object, which is a variable
// with a name (openmpi_objects.def). A program may have its own copy of that variable (by a copy
// relocation), which the linker then lets the library use as well. So a predefined object is known
// by what it says, and not by where it lies.
#ifndef TUTTI_BINDINGS_MPI_OPENMPI_ABI_H
#define TUTTI_BINDINGS_MPI_OPENMPI_ABI_H

#include <stddef.h>
#include <stdint.h>

// clang-format off

#define MPI_VERSION 5
#define MPI_SUBVERSION 0
#define MPI_ABI_VERSION (-1)  // not the standard's
#define MPI_ABI_SUBVERSION (-1)

// --- Integers and the status of a receive

typedef intptr_t MPI_Aint;    // an address, or the distance of two, in bytes
typedef int64_t MPI_Offset;   // a place in a file, in bytes
typedef int64_t MPI_Count;    // a number of elements

struct MPI_Status {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int cancelled;
  size_t bytes;               // that were received
};

// --- Handles

typedef struct ompi_communicator_t* MPI_Comm;
typedef struct ompi_group_t* MPI_Group;
typedef struct ompi_datatype_t* MPI_Datatype;
typedef struct ompi_op_t* MPI_Op;
typedef struct ompi_request_t* MPI_Request;
typedef struct ompi_message_t* MPI_Message;
typedef struct ompi_info_t* MPI_Info;
typedef struct ompi_errhandler_t* MPI_Errhandler;
typedef struct ompi_instance_t* MPI_Session;
typedef struct ompi_win_t* MPI_Win;
typedef struct ompi_file_t* MPI_File;
typedef struct mca_base_var_enum_t* MPI_T_enum;
typedef struct ompi_mpit_cvar_handle_t* MPI_T_cvar_handle;
typedef struct mca_base_pvar_handle_t* MPI_T_pvar_handle;
typedef struct mca_base_pvar_session_t* MPI_T_pvar_session;
typedef struct ompi_mpit_event_registration_t* MPI_T_event_registration;
typedef struct ompi_mpit_event_instance_t* MPI_T_event_instance;

/// What lies at a predefined handle. Smaller than Open MPI's, so that copies have room for it.
struct __attribute__((may_alias)) OpenMpiObject {
  uintptr_t kind;   // a number below those of addresses
  uintptr_t place;  // among the objects of the kind
};
#define TUTTI_MPI_OBJECT(handle, place, name) extern "C" __attribute__((visibility("default"))) OpenMpiObject name;
#include "openmpi_objects.def"
#undef TUTTI_MPI_OBJECT

// Communicators, groups, requests, messages, hints, error handlers, sessions, windows, files
#define MPI_COMM_NULL ((MPI_Comm)&ompi_mpi_comm_null)
#define MPI_COMM_WORLD ((MPI_Comm)&ompi_mpi_comm_world)
#define MPI_COMM_SELF ((MPI_Comm)&ompi_mpi_comm_self)
#define MPI_GROUP_NULL ((MPI_Group)&ompi_mpi_group_null)
#define MPI_GROUP_EMPTY ((MPI_Group)&ompi_mpi_group_empty)
#define MPI_REQUEST_NULL ((MPI_Request)&ompi_request_null)
#define MPI_MESSAGE_NULL ((MPI_Message)&ompi_message_null)
#define MPI_MESSAGE_NO_PROC ((MPI_Message)&ompi_message_no_proc)
#define MPI_INFO_NULL ((MPI_Info)&ompi_mpi_info_null)
#define MPI_INFO_ENV ((MPI_Info)&ompi_mpi_info_env)
#define MPI_ERRHANDLER_NULL ((MPI_Errhandler)&ompi_mpi_errhandler_null)
#define MPI_ERRORS_ARE_FATAL ((MPI_Errhandler)&ompi_mpi_errors_are_fatal)
#define MPI_ERRORS_ABORT ((MPI_Errhandler)&ompi_mpi_errors_abort)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)&ompi_mpi_errors_return)
#define MPI_SESSION_NULL ((MPI_Session)&ompi_mpi_instance_null)
#define MPI_WIN_NULL ((MPI_Win)&ompi_mpi_win_null)
#define MPI_FILE_NULL ((MPI_File)&ompi_mpi_file_null)

// Operators
#define MPI_OP_NULL ((MPI_Op)&ompi_mpi_op_null)
#define MPI_SUM ((MPI_Op)&ompi_mpi_op_sum)
#define MPI_MIN ((MPI_Op)&ompi_mpi_op_min)
#define MPI_MAX ((MPI_Op)&ompi_mpi_op_max)
#define MPI_PROD ((MPI_Op)&ompi_mpi_op_prod)
#define MPI_BAND ((MPI_Op)&ompi_mpi_op_band)
#define MPI_BOR ((MPI_Op)&ompi_mpi_op_bor)
#define MPI_BXOR ((MPI_Op)&ompi_mpi_op_bxor)
#define MPI_LAND ((MPI_Op)&ompi_mpi_op_land)
#define MPI_LOR ((MPI_Op)&ompi_mpi_op_lor)
#define MPI_LXOR ((MPI_Op)&ompi_mpi_op_lxor)
#define MPI_MINLOC ((MPI_Op)&ompi_mpi_op_minloc)
#define MPI_MAXLOC ((MPI_Op)&ompi_mpi_op_maxloc)
#define MPI_REPLACE ((MPI_Op)&ompi_mpi_op_replace)
#define MPI_NO_OP ((MPI_Op)&ompi_mpi_op_no_op)

// Data types: of C by name and by width, of C++, and of Fortran (by name, and by width in bytes)
#define MPI_DATATYPE_NULL ((MPI_Datatype)&ompi_mpi_datatype_null)
#define MPI_BYTE ((MPI_Datatype)&ompi_mpi_byte)
#define MPI_PACKED ((MPI_Datatype)&ompi_mpi_packed)
#define MPI_AINT ((MPI_Datatype)&ompi_mpi_aint)
#define MPI_COUNT ((MPI_Datatype)&ompi_mpi_count)
#define MPI_OFFSET ((MPI_Datatype)&ompi_mpi_offset)
#define MPI_CHAR ((MPI_Datatype)&ompi_mpi_char)
#define MPI_SIGNED_CHAR ((MPI_Datatype)&ompi_mpi_signed_char)
#define MPI_UNSIGNED_CHAR ((MPI_Datatype)&ompi_mpi_unsigned_char)
#define MPI_WCHAR ((MPI_Datatype)&ompi_mpi_wchar)
#define MPI_SHORT ((MPI_Datatype)&ompi_mpi_short)
#define MPI_UNSIGNED_SHORT ((MPI_Datatype)&ompi_mpi_unsigned_short)
#define MPI_INT ((MPI_Datatype)&ompi_mpi_int)
#define MPI_UNSIGNED ((MPI_Datatype)&ompi_mpi_unsigned)
#define MPI_LONG ((MPI_Datatype)&ompi_mpi_long)
#define MPI_UNSIGNED_LONG ((MPI_Datatype)&ompi_mpi_unsigned_long)
#define MPI_LONG_LONG ((MPI_Datatype)&ompi_mpi_long_long_int)
#define MPI_LONG_LONG_INT MPI_LONG_LONG
#define MPI_UNSIGNED_LONG_LONG ((MPI_Datatype)&ompi_mpi_unsigned_long_long)
#define MPI_FLOAT ((MPI_Datatype)&ompi_mpi_float)
#define MPI_DOUBLE ((MPI_Datatype)&ompi_mpi_double)
#define MPI_LONG_DOUBLE ((MPI_Datatype)&ompi_mpi_long_double)
#define MPI_C_BOOL ((MPI_Datatype)&ompi_mpi_c_bool)
#define MPI_C_FLOAT_COMPLEX ((MPI_Datatype)&ompi_mpi_c_float_complex)
#define MPI_C_COMPLEX MPI_C_FLOAT_COMPLEX
#define MPI_C_DOUBLE_COMPLEX ((MPI_Datatype)&ompi_mpi_c_double_complex)
#define MPI_C_LONG_DOUBLE_COMPLEX ((MPI_Datatype)&ompi_mpi_c_long_double_complex)
#define MPI_INT8_T ((MPI_Datatype)&ompi_mpi_int8_t)
#define MPI_INT16_T ((MPI_Datatype)&ompi_mpi_int16_t)
#define MPI_INT32_T ((MPI_Datatype)&ompi_mpi_int32_t)
#define MPI_INT64_T ((MPI_Datatype)&ompi_mpi_int64_t)
#define MPI_UINT8_T ((MPI_Datatype)&ompi_mpi_uint8_t)
#define MPI_UINT16_T ((MPI_Datatype)&ompi_mpi_uint16_t)
#define MPI_UINT32_T ((MPI_Datatype)&ompi_mpi_uint32_t)
#define MPI_UINT64_T ((MPI_Datatype)&ompi_mpi_uint64_t)
#define MPI_CXX_BOOL ((MPI_Datatype)&ompi_mpi_cxx_bool)
#define MPI_CXX_FLOAT_COMPLEX ((MPI_Datatype)&ompi_mpi_cxx_cplex)
#define MPI_CXX_DOUBLE_COMPLEX ((MPI_Datatype)&ompi_mpi_cxx_dblcplex)
#define MPI_CXX_LONG_DOUBLE_COMPLEX ((MPI_Datatype)&ompi_mpi_cxx_ldblcplex)
#define MPI_SHORT_INT ((MPI_Datatype)&ompi_mpi_short_int)
#define MPI_2INT ((MPI_Datatype)&ompi_mpi_2int)
#define MPI_LONG_INT ((MPI_Datatype)&ompi_mpi_long_int)
#define MPI_FLOAT_INT ((MPI_Datatype)&ompi_mpi_float_int)
#define MPI_DOUBLE_INT ((MPI_Datatype)&ompi_mpi_double_int)
#define MPI_LONG_DOUBLE_INT ((MPI_Datatype)&ompi_mpi_longdbl_int)
#define MPI_LOGICAL ((MPI_Datatype)&ompi_mpi_logical)
#define MPI_INTEGER ((MPI_Datatype)&ompi_mpi_integer)
#define MPI_REAL ((MPI_Datatype)&ompi_mpi_real)
#define MPI_COMPLEX ((MPI_Datatype)&ompi_mpi_cplex)
#define MPI_DOUBLE_PRECISION ((MPI_Datatype)&ompi_mpi_dblprec)
#define MPI_DOUBLE_COMPLEX ((MPI_Datatype)&ompi_mpi_dblcplex)
#define MPI_CHARACTER ((MPI_Datatype)&ompi_mpi_character)
#define MPI_2REAL ((MPI_Datatype)&ompi_mpi_2real)
#define MPI_2DOUBLE_PRECISION ((MPI_Datatype)&ompi_mpi_2dblprec)
#define MPI_2INTEGER ((MPI_Datatype)&ompi_mpi_2integer)
#define MPIX_C_FLOAT16 ((MPI_Datatype)&ompi_mpi_float16)
#define MPIX_BFLOAT16 ((MPI_Datatype)&ompi_mpi_bfloat16)
#define MPI_LOGICAL1 ((MPI_Datatype)&ompi_mpi_logical1)
#define MPI_INTEGER1 ((MPI_Datatype)&ompi_mpi_integer1)
#define MPI_LOGICAL2 ((MPI_Datatype)&ompi_mpi_logical2)
#define MPI_INTEGER2 ((MPI_Datatype)&ompi_mpi_integer2)
#define MPI_REAL2 ((MPI_Datatype)&ompi_mpi_real2)
#define MPI_LOGICAL4 ((MPI_Datatype)&ompi_mpi_logical4)
#define MPI_INTEGER4 ((MPI_Datatype)&ompi_mpi_integer4)
#define MPI_REAL4 ((MPI_Datatype)&ompi_mpi_real4)
#define MPI_COMPLEX4 ((MPI_Datatype)&ompi_mpi_complex4)
#define MPI_LOGICAL8 ((MPI_Datatype)&ompi_mpi_logical8)
#define MPI_INTEGER8 ((MPI_Datatype)&ompi_mpi_integer8)
#define MPI_REAL8 ((MPI_Datatype)&ompi_mpi_real8)
#define MPI_COMPLEX8 ((MPI_Datatype)&ompi_mpi_complex8)
#define MPI_LOGICAL16 ((MPI_Datatype)&ompi_mpi_logical16)
#define MPI_INTEGER16 ((MPI_Datatype)&ompi_mpi_integer16)
#define MPI_REAL16 ((MPI_Datatype)&ompi_mpi_real16)
#define MPI_COMPLEX16 ((MPI_Datatype)&ompi_mpi_complex16)
#define MPI_COMPLEX32 ((MPI_Datatype)&ompi_mpi_complex32)

// That no constant of Open MPI 5's names, but programs look up (MLX)
#define OMPI_C_COMPLEX ((MPI_Datatype)&ompi_mpi_c_complex)
#define OMPI_LONG_DOUBLE_COMPLEX ((MPI_Datatype)&ompi_mpi_ldblcplex)

// --- Arguments with a meaning of their own

enum {
  MPI_ANY_SOURCE = -1,
  MPI_ANY_TAG = -1,
  MPI_PROC_NULL = -2,
  MPI_ROOT = -4,
  MPI_UNDEFINED = -32766,
};
#define MPI_BOTTOM ((void*)0)
#define MPI_IN_PLACE ((void*)1)
#define MPI_BUFFER_AUTOMATIC ((void*)2)
#define MPI_STATUS_IGNORE ((MPI_Status*)0)
#define MPI_STATUSES_IGNORE ((MPI_Status*)0)
#define MPI_UNWEIGHTED ((int*)2)
#define MPI_WEIGHTS_EMPTY ((int*)3)
#define MPI_ARGV_NULL ((char**)0)
#define MPI_ARGVS_NULL ((char***)0)
#define MPI_ERRCODES_IGNORE ((int*)0)
#define MPI_DISPLACEMENT_CURRENT ((MPI_Offset)-54278278)

// --- Results and levels

enum {  // what two communicators or groups have in common
  MPI_IDENT = 0,
  MPI_CONGRUENT = 1,
  MPI_SIMILAR = 2,
  MPI_UNEQUAL = 3,
};
enum {  // threads that may call
  MPI_THREAD_SINGLE = 0,
  MPI_THREAD_FUNNELED = 1,
  MPI_THREAD_SERIALIZED = 2,
  MPI_THREAD_MULTIPLE = 3,
};
enum {  // kinds of topologies
  MPI_CART = 1,
  MPI_GRAPH = 2,
  MPI_DIST_GRAPH = 3,
};
enum {  // how MPI_Comm_split_type splits
  MPI_COMM_TYPE_SHARED = 0,
  MPI_COMM_TYPE_HW_UNGUIDED = 12,
  MPI_COMM_TYPE_HW_GUIDED = 13,
  MPI_COMM_TYPE_RESOURCE_GUIDED = 14,
};

// --- How data types are made and classed

enum {
  MPI_ORDER_C = 0,
  MPI_ORDER_FORTRAN = 1,
  MPI_DISTRIBUTE_NONE = 2,
  MPI_DISTRIBUTE_BLOCK = 0,
  MPI_DISTRIBUTE_CYCLIC = 1,
  MPI_DISTRIBUTE_DFLT_DARG = -1,
  MPI_TYPECLASS_INTEGER = 1,
  MPI_TYPECLASS_REAL = 2,
  MPI_TYPECLASS_COMPLEX = 3,
  MPI_COMBINER_NAMED = 0,
  MPI_COMBINER_DUP = 1,
  MPI_COMBINER_CONTIGUOUS = 2,
  MPI_COMBINER_VECTOR = 3,
  MPI_COMBINER_HVECTOR = 5,
  MPI_COMBINER_INDEXED = 6,
  MPI_COMBINER_HINDEXED = 8,
  MPI_COMBINER_INDEXED_BLOCK = 9,
  MPI_COMBINER_HINDEXED_BLOCK = 18,
  MPI_COMBINER_STRUCT = 11,
  MPI_COMBINER_SUBARRAY = 12,
  MPI_COMBINER_DARRAY = 13,
  MPI_COMBINER_F90_REAL = 14,
  MPI_COMBINER_F90_COMPLEX = 15,
  MPI_COMBINER_F90_INTEGER = 16,
  MPI_COMBINER_RESIZED = 17,
  MPI_COMBINER_VALUE_INDEX = 19,
};

// --- Windows

enum {
  MPI_LOCK_EXCLUSIVE = 1,
  MPI_LOCK_SHARED = 2,
  MPI_WIN_FLAVOR_CREATE = 1,
  MPI_WIN_FLAVOR_ALLOCATE = 2,
  MPI_WIN_FLAVOR_DYNAMIC = 3,
  MPI_WIN_FLAVOR_SHARED = 4,
  MPI_WIN_UNIFIED = 0,
  MPI_WIN_SEPARATE = 1,
  MPI_MODE_NOCHECK = 1,
  MPI_MODE_NOPRECEDE = 2,
  MPI_MODE_NOPUT = 4,
  MPI_MODE_NOSTORE = 8,
  MPI_MODE_NOSUCCEED = 16,
};

// --- Files

enum {
  MPI_SEEK_SET = 600,
  MPI_SEEK_CUR = 602,
  MPI_SEEK_END = 604,
  MPI_MODE_APPEND = 128,
  MPI_MODE_CREATE = 1,
  MPI_MODE_DELETE_ON_CLOSE = 16,
  MPI_MODE_EXCL = 64,
  MPI_MODE_RDONLY = 2,
  MPI_MODE_RDWR = 8,
  MPI_MODE_SEQUENTIAL = 256,
  MPI_MODE_UNIQUE_OPEN = 32,
  MPI_MODE_WRONLY = 4,
};

// --- Keys of predefined attributes: of communicators, of windows

enum {
  MPI_KEYVAL_INVALID = -1,
  MPI_TAG_UB = 0,
  MPI_IO = 2,
  MPI_HOST = 1,
  MPI_WTIME_IS_GLOBAL = 3,
  MPI_APPNUM = 4,
  MPI_LASTUSEDCODE = 5,
  MPI_UNIVERSE_SIZE = 6,
  MPI_WIN_BASE = 7,
  MPI_WIN_DISP_UNIT = 9,
  MPI_WIN_SIZE = 8,
  MPI_WIN_CREATE_FLAVOR = 10,
  MPI_WIN_MODEL = 11,
};

// --- Lengths of texts, with the zero at their end, and of what a buffered send needs besides its data

#define MPI_MAX_DATAREP_STRING 128
#define MPI_MAX_ERROR_STRING 256
#define MPI_MAX_INFO_KEY 36
#define MPI_MAX_INFO_VAL 256
#define MPI_MAX_LIBRARY_VERSION_STRING 256
#define MPI_MAX_OBJECT_NAME 64
#define MPI_MAX_PORT_NAME 1024
#define MPI_MAX_PROCESSOR_NAME 256
#define MPI_MAX_STRINGTAG_LEN 1024
#define MPI_MAX_PSET_NAME_LEN 512
#define MPI_BSEND_OVERHEAD 128

// --- Classes of errors

enum {
  MPI_SUCCESS = 0,
  MPI_ERR_BUFFER = 1,
  MPI_ERR_COUNT = 2,
  MPI_ERR_TYPE = 3,
  MPI_ERR_TAG = 4,
  MPI_ERR_COMM = 5,
  MPI_ERR_RANK = 6,
  MPI_ERR_REQUEST = 7,
  MPI_ERR_ROOT = 8,
  MPI_ERR_GROUP = 9,
  MPI_ERR_OP = 10,
  MPI_ERR_TOPOLOGY = 11,
  MPI_ERR_DIMS = 12,
  MPI_ERR_ARG = 13,
  MPI_ERR_UNKNOWN = 14,
  MPI_ERR_TRUNCATE = 15,
  MPI_ERR_OTHER = 16,
  MPI_ERR_INTERN = 17,
  MPI_ERR_PENDING = 19,
  MPI_ERR_IN_STATUS = 18,
  MPI_ERR_ACCESS = 20,
  MPI_ERR_AMODE = 21,
  MPI_ERR_ASSERT = 22,
  MPI_ERR_BAD_FILE = 23,
  MPI_ERR_BASE = 24,
  MPI_ERR_CONVERSION = 25,
  MPI_ERR_DISP = 26,
  MPI_ERR_DUP_DATAREP = 27,
  MPI_ERR_FILE_EXISTS = 28,
  MPI_ERR_FILE_IN_USE = 29,
  MPI_ERR_FILE = 30,
  MPI_ERR_INFO_KEY = 31,
  MPI_ERR_INFO_NOKEY = 32,
  MPI_ERR_INFO_VALUE = 33,
  MPI_ERR_INFO = 34,
  MPI_ERR_IO = 35,
  MPI_ERR_KEYVAL = 36,
  MPI_ERR_LOCKTYPE = 37,
  MPI_ERR_NAME = 38,
  MPI_ERR_NO_MEM = 39,
  MPI_ERR_NOT_SAME = 40,
  MPI_ERR_NO_SPACE = 41,
  MPI_ERR_NO_SUCH_FILE = 42,
  MPI_ERR_PORT = 43,
  MPI_ERR_QUOTA = 44,
  MPI_ERR_READ_ONLY = 45,
  MPI_ERR_RMA_ATTACH = 69,
  MPI_ERR_RMA_CONFLICT = 46,
  MPI_ERR_RMA_RANGE = 68,
  MPI_ERR_RMA_SHARED = 71,
  MPI_ERR_RMA_SYNC = 47,
  MPI_ERR_SERVICE = 48,
  MPI_ERR_SIZE = 49,
  MPI_ERR_SPAWN = 50,
  MPI_ERR_UNSUPPORTED_DATAREP = 51,
  MPI_ERR_UNSUPPORTED_OPERATION = 52,
  MPI_ERR_WIN = 53,
  MPI_ERR_RMA_FLAVOR = 70,
  MPI_ERR_PROC_ABORTED = 74,
  MPI_ERR_VALUE_TOO_LARGE = 79,
  MPI_ERR_SESSION = 78,
  MPI_ERR_ERRHANDLER = 80,
  MPI_ERR_ABI = 81,
  MPI_ERR_LASTCODE = 92,
};

// --- Functions of the standard's own, which the library exports (declared below)

#define MPI_NULL_COPY_FN OMPI_C_MPI_NULL_COPY_FN
#define MPI_DUP_FN OMPI_C_MPI_DUP_FN
#define MPI_NULL_DELETE_FN OMPI_C_MPI_NULL_DELETE_FN
#define MPI_COMM_NULL_COPY_FN OMPI_C_MPI_COMM_NULL_COPY_FN
#define MPI_COMM_DUP_FN OMPI_C_MPI_COMM_DUP_FN
#define MPI_COMM_NULL_DELETE_FN OMPI_C_MPI_COMM_NULL_DELETE_FN
#define MPI_TYPE_NULL_COPY_FN OMPI_C_MPI_TYPE_NULL_COPY_FN
#define MPI_TYPE_DUP_FN OMPI_C_MPI_TYPE_DUP_FN
#define MPI_TYPE_NULL_DELETE_FN OMPI_C_MPI_TYPE_NULL_DELETE_FN
#define MPI_WIN_NULL_COPY_FN OMPI_C_MPI_WIN_NULL_COPY_FN
#define MPI_WIN_DUP_FN OMPI_C_MPI_WIN_DUP_FN
#define MPI_WIN_NULL_DELETE_FN OMPI_C_MPI_WIN_NULL_DELETE_FN
#define MPI_CONVERSION_FN_NULL ((MPI_Datarep_conversion_function*)0)
#define MPI_CONVERSION_FN_NULL_C ((MPI_Datarep_conversion_function_c*)0)

// --- The tools interface, which Tutti refuses: what it returns, and the types of its arguments

enum {
  MPI_T_ERR_NOT_INITIALIZED = 55,
  MPI_T_ERR_CANNOT_INIT = 56,
};
enum MPI_T_cb_safety {
  MPI_T_CB_REQUIRE_NONE = 0,
  MPI_T_CB_REQUIRE_MPI_RESTRICTED = 1,
  MPI_T_CB_REQUIRE_THREAD_SAFE = 2,
  MPI_T_CB_REQUIRE_ASYNC_SIGNAL_SAFE = 3,
};
enum MPI_T_source_order {
  MPI_T_SOURCE_ORDERED = 0,
  MPI_T_SOURCE_UNORDERED = 1,
};

// --- The status as Fortran has it: an array of integers, or a structure

enum {
  MPI_F_STATUS_SIZE = 6,
  MPI_F_SOURCE = 0,
  MPI_F_TAG = 1,
  MPI_F_ERROR = 2,
};
typedef int MPI_Fint;
struct MPI_F08_status {
  MPI_Fint MPI_SOURCE;
  MPI_Fint MPI_TAG;
  MPI_Fint MPI_ERROR;
  MPI_Fint internal[3];
};

#include "abi_functions.h"

#pragma GCC visibility push(default)
extern "C" {
MPI_Copy_function OMPI_C_MPI_NULL_COPY_FN, OMPI_C_MPI_DUP_FN, OMPI_C_MPI_COMM_NULL_COPY_FN, OMPI_C_MPI_COMM_DUP_FN;
MPI_Type_copy_attr_function OMPI_C_MPI_TYPE_NULL_COPY_FN, OMPI_C_MPI_TYPE_DUP_FN;
MPI_Win_copy_attr_function OMPI_C_MPI_WIN_NULL_COPY_FN, OMPI_C_MPI_WIN_DUP_FN;
MPI_Delete_function OMPI_C_MPI_NULL_DELETE_FN, OMPI_C_MPI_COMM_NULL_DELETE_FN;
MPI_Type_delete_attr_function OMPI_C_MPI_TYPE_NULL_DELETE_FN;
MPI_Win_delete_attr_function OMPI_C_MPI_WIN_NULL_DELETE_FN;
}
#pragma GCC visibility pop

// clang-format on

#endif
