// MPICH's binary interface, which Intel MPI, Cray's and MVAPICH's libraries share (libmpi.so.12):
// types, and the constants with the values of MPICH 5's mpi.h. C++ alone: programs include MPICH's
// own mpi.h.
//
// A handle is an integer: two bits how it came about (01: predefined), four its kind, the rest
// which one. Here each kind of handle is a type of its own with the representation of an int, so
// that no call takes one for another.
#ifndef TUTTI_BINDINGS_MPI_MPICH_ABI_H
#define TUTTI_BINDINGS_MPI_MPICH_ABI_H

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
  int count_lo;                 // of the bytes that were received
  int count_hi_and_cancelled;   // twice the rest of them, and 1 where the request was cancelled
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
};

// --- Handles

enum MPI_Comm : int {};
enum MPI_Group : int {};
enum MPI_Datatype : int {};
enum MPI_Op : int {};
enum MPI_Request : int {};
enum MPI_Message : int {};
enum MPI_Info : int {};
enum MPI_Errhandler : int {};
enum MPI_Session : int {};
enum MPI_Win : int {};
typedef struct MPICH_File* MPI_File;
typedef struct MPICH_T_enum* MPI_T_enum;
typedef struct MPICH_T_cvar_handle* MPI_T_cvar_handle;
typedef struct MPICH_T_pvar_handle* MPI_T_pvar_handle;
typedef struct MPICH_T_pvar_session* MPI_T_pvar_session;
typedef struct MPICH_T_event_registration* MPI_T_event_registration;
typedef struct MPICH_T_event_instance* MPI_T_event_instance;

// Communicators, groups, requests, messages, hints, error handlers, sessions, windows, files
#define MPI_COMM_NULL ((MPI_Comm)0x04000000)
#define MPI_COMM_WORLD ((MPI_Comm)0x44000000)
#define MPI_COMM_SELF ((MPI_Comm)0x44000001)
#define MPI_GROUP_NULL ((MPI_Group)0x08000000)
#define MPI_GROUP_EMPTY ((MPI_Group)0x48000000)
#define MPI_REQUEST_NULL ((MPI_Request)0x2c000000)
#define MPI_MESSAGE_NULL ((MPI_Message)0x2c000000)
#define MPI_MESSAGE_NO_PROC ((MPI_Message)0x6c000000)
#define MPI_INFO_NULL ((MPI_Info)0x1c000000)
#define MPI_INFO_ENV ((MPI_Info)0x5c000001)
#define MPI_ERRHANDLER_NULL ((MPI_Errhandler)0x14000000)
#define MPI_ERRORS_ARE_FATAL ((MPI_Errhandler)0x54000000)
#define MPI_ERRORS_ABORT ((MPI_Errhandler)0x54000003)
#define MPI_ERRORS_RETURN ((MPI_Errhandler)0x54000001)
#define MPI_SESSION_NULL ((MPI_Session)0x38000000)
#define MPI_WIN_NULL ((MPI_Win)0x20000000)
#define MPI_FILE_NULL ((MPI_File)0)

// Operators
#define MPI_OP_NULL ((MPI_Op)0x18000000)
#define MPI_SUM ((MPI_Op)0x58000003)
#define MPI_MIN ((MPI_Op)0x58000002)
#define MPI_MAX ((MPI_Op)0x58000001)
#define MPI_PROD ((MPI_Op)0x58000004)
#define MPI_BAND ((MPI_Op)0x58000006)
#define MPI_BOR ((MPI_Op)0x58000008)
#define MPI_BXOR ((MPI_Op)0x5800000a)
#define MPI_LAND ((MPI_Op)0x58000005)
#define MPI_LOR ((MPI_Op)0x58000007)
#define MPI_LXOR ((MPI_Op)0x58000009)
#define MPI_MINLOC ((MPI_Op)0x5800000b)
#define MPI_MAXLOC ((MPI_Op)0x5800000c)
#define MPI_REPLACE ((MPI_Op)0x5800000d)
#define MPI_NO_OP ((MPI_Op)0x5800000e)

// Data types: of C by name and by width, of C++, and of Fortran (by name, and by width in bytes)
#define MPI_DATATYPE_NULL ((MPI_Datatype)0x0c000000)
#define MPI_BYTE ((MPI_Datatype)0x4c00010d)
#define MPI_PACKED ((MPI_Datatype)0x4c00010f)
#define MPI_AINT ((MPI_Datatype)0x4c000843)
#define MPI_COUNT ((MPI_Datatype)0x4c000845)
#define MPI_OFFSET ((MPI_Datatype)0x4c000844)
#define MPI_CHAR ((MPI_Datatype)0x4c000101)
#define MPI_SIGNED_CHAR ((MPI_Datatype)0x4c000118)
#define MPI_UNSIGNED_CHAR ((MPI_Datatype)0x4c000102)
#define MPI_WCHAR ((MPI_Datatype)0x4c00040e)
#define MPI_SHORT ((MPI_Datatype)0x4c000203)
#define MPI_UNSIGNED_SHORT ((MPI_Datatype)0x4c000204)
#define MPI_INT ((MPI_Datatype)0x4c000405)
#define MPI_UNSIGNED ((MPI_Datatype)0x4c000406)
#define MPI_LONG ((MPI_Datatype)0x4c000807)
#define MPI_UNSIGNED_LONG ((MPI_Datatype)0x4c000808)
#define MPI_LONG_LONG ((MPI_Datatype)0x4c000809)
#define MPI_LONG_LONG_INT MPI_LONG_LONG
#define MPI_UNSIGNED_LONG_LONG ((MPI_Datatype)0x4c000819)
#define MPI_FLOAT ((MPI_Datatype)0x4c00040a)
#define MPI_DOUBLE ((MPI_Datatype)0x4c00080b)
#define MPI_LONG_DOUBLE ((MPI_Datatype)0x4c00100c)
#define MPI_C_BOOL ((MPI_Datatype)0x4c00013f)
#define MPI_C_FLOAT_COMPLEX ((MPI_Datatype)0x4c000840)
#define MPI_C_COMPLEX MPI_C_FLOAT_COMPLEX
#define MPI_C_DOUBLE_COMPLEX ((MPI_Datatype)0x4c001041)
#define MPI_C_LONG_DOUBLE_COMPLEX ((MPI_Datatype)0x4c002042)
#define MPI_INT8_T ((MPI_Datatype)0x4c000137)
#define MPI_INT16_T ((MPI_Datatype)0x4c000238)
#define MPI_INT32_T ((MPI_Datatype)0x4c000439)
#define MPI_INT64_T ((MPI_Datatype)0x4c00083a)
#define MPI_UINT8_T ((MPI_Datatype)0x4c00013b)
#define MPI_UINT16_T ((MPI_Datatype)0x4c00023c)
#define MPI_UINT32_T ((MPI_Datatype)0x4c00043d)
#define MPI_UINT64_T ((MPI_Datatype)0x4c00083e)
#define MPI_CXX_BOOL ((MPI_Datatype)0x4c000133)
#define MPI_CXX_FLOAT_COMPLEX ((MPI_Datatype)0x4c000834)
#define MPI_CXX_DOUBLE_COMPLEX ((MPI_Datatype)0x4c001035)
#define MPI_CXX_LONG_DOUBLE_COMPLEX ((MPI_Datatype)0x4c002036)
#define MPI_SHORT_INT ((MPI_Datatype)0x8c000003)
#define MPI_2INT ((MPI_Datatype)0x4c000816)
#define MPI_LONG_INT ((MPI_Datatype)0x8c000002)
#define MPI_FLOAT_INT ((MPI_Datatype)0x8c000000)
#define MPI_DOUBLE_INT ((MPI_Datatype)0x8c000001)
#define MPI_LONG_DOUBLE_INT ((MPI_Datatype)0x8c000004)
#define MPI_LOGICAL ((MPI_Datatype)0x4c00041d)
#define MPI_INTEGER ((MPI_Datatype)0x4c00041b)
#define MPI_REAL ((MPI_Datatype)0x4c00041c)
#define MPI_COMPLEX ((MPI_Datatype)0x4c00081e)
#define MPI_DOUBLE_PRECISION ((MPI_Datatype)0x4c00081f)
#define MPI_DOUBLE_COMPLEX ((MPI_Datatype)0x4c001022)
#define MPI_CHARACTER ((MPI_Datatype)0x4c00011a)
#define MPI_2REAL ((MPI_Datatype)0x4c000821)
#define MPI_2DOUBLE_PRECISION ((MPI_Datatype)0x4c001023)
#define MPI_2INTEGER ((MPI_Datatype)0x4c000820)
#define MPIX_C_FLOAT16 ((MPI_Datatype)0x4c000246)
#define MPIX_BFLOAT16 ((MPI_Datatype)0x4c00024c)  // Intel's 0x4c000247 is unknown here
#define MPI_LOGICAL1 ((MPI_Datatype)0x4c000147)
#define MPI_INTEGER1 ((MPI_Datatype)0x4c00012d)
#define MPI_LOGICAL2 ((MPI_Datatype)0x4c000248)
#define MPI_INTEGER2 ((MPI_Datatype)0x4c00022f)
#define MPI_REAL2 ((MPI_Datatype)0x4c000226)
#define MPI_LOGICAL4 ((MPI_Datatype)0x4c000449)
#define MPI_INTEGER4 ((MPI_Datatype)0x4c000430)
#define MPI_REAL4 ((MPI_Datatype)0x4c000427)
#define MPI_COMPLEX4 ((MPI_Datatype)0x4c00042e)
#define MPI_LOGICAL8 ((MPI_Datatype)0x4c00084a)
#define MPI_INTEGER8 ((MPI_Datatype)0x4c000831)
#define MPI_REAL8 ((MPI_Datatype)0x4c000829)
#define MPI_COMPLEX8 ((MPI_Datatype)0x4c000828)
#define MPI_LOGICAL16 ((MPI_Datatype)0x4c00104b)
#define MPI_INTEGER16 ((MPI_Datatype)0x4c001032)
#define MPI_REAL16 ((MPI_Datatype)0x4c00102b)
#define MPI_COMPLEX16 ((MPI_Datatype)0x4c00102a)
#define MPI_COMPLEX32 ((MPI_Datatype)0x4c00202c)

// --- Arguments with a meaning of their own

enum {
  MPI_ANY_SOURCE = -2,
  MPI_ANY_TAG = -1,
  MPI_PROC_NULL = -1,
  MPI_ROOT = -3,
  MPI_UNDEFINED = -32766,
};
#define MPI_BOTTOM ((void*)0)
#define MPI_IN_PLACE ((void*)-1)
#define MPI_BUFFER_AUTOMATIC ((void*)-2)
#define MPI_STATUS_IGNORE ((MPI_Status*)1)
#define MPI_STATUSES_IGNORE ((MPI_Status*)1)
#define MPI_UNWEIGHTED ((int*)10)  // programs read it from a variable of this name (export_mpich.cpp)
#define MPI_WEIGHTS_EMPTY ((int*)11)
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
  MPI_CART = 2,
  MPI_GRAPH = 1,
  MPI_DIST_GRAPH = 3,
};
enum {  // how MPI_Comm_split_type splits
  MPI_COMM_TYPE_SHARED = 1,
  MPI_COMM_TYPE_HW_UNGUIDED = 3,
  MPI_COMM_TYPE_HW_GUIDED = 2,
  MPI_COMM_TYPE_RESOURCE_GUIDED = 4,
};

// --- How data types are made and classed

enum {
  MPI_ORDER_C = 56,
  MPI_ORDER_FORTRAN = 57,
  MPI_DISTRIBUTE_NONE = 123,
  MPI_DISTRIBUTE_BLOCK = 121,
  MPI_DISTRIBUTE_CYCLIC = 122,
  MPI_DISTRIBUTE_DFLT_DARG = -49767,
  MPI_TYPECLASS_INTEGER = 2,
  MPI_TYPECLASS_REAL = 1,
  MPI_TYPECLASS_COMPLEX = 3,
  MPI_COMBINER_NAMED = 1,
  MPI_COMBINER_DUP = 2,
  MPI_COMBINER_CONTIGUOUS = 3,
  MPI_COMBINER_VECTOR = 4,
  MPI_COMBINER_HVECTOR = 6,
  MPI_COMBINER_INDEXED = 7,
  MPI_COMBINER_HINDEXED = 9,
  MPI_COMBINER_INDEXED_BLOCK = 10,
  MPI_COMBINER_HINDEXED_BLOCK = 19,
  MPI_COMBINER_STRUCT = 12,
  MPI_COMBINER_SUBARRAY = 13,
  MPI_COMBINER_DARRAY = 14,
  MPI_COMBINER_F90_REAL = 15,
  MPI_COMBINER_F90_COMPLEX = 16,
  MPI_COMBINER_F90_INTEGER = 17,
  MPI_COMBINER_RESIZED = 18,
  MPI_COMBINER_VALUE_INDEX = 20,
};

// --- Windows

enum {
  MPI_LOCK_EXCLUSIVE = 234,
  MPI_LOCK_SHARED = 235,
  MPI_WIN_FLAVOR_CREATE = 1,
  MPI_WIN_FLAVOR_ALLOCATE = 2,
  MPI_WIN_FLAVOR_DYNAMIC = 3,
  MPI_WIN_FLAVOR_SHARED = 4,
  MPI_WIN_UNIFIED = 2,
  MPI_WIN_SEPARATE = 1,
  MPI_MODE_NOCHECK = 1024,
  MPI_MODE_NOPRECEDE = 8192,
  MPI_MODE_NOPUT = 4096,
  MPI_MODE_NOSTORE = 2048,
  MPI_MODE_NOSUCCEED = 16384,
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
  MPI_KEYVAL_INVALID = 0x24000000,
  MPI_TAG_UB = 0x64400001,
  MPI_IO = 0x64400005,
  MPI_HOST = 0x64400003,
  MPI_WTIME_IS_GLOBAL = 0x64400007,
  MPI_APPNUM = 0x6440000d,
  MPI_LASTUSEDCODE = 0x6440000b,
  MPI_UNIVERSE_SIZE = 0x64400009,
  MPI_WIN_BASE = 0x66000001,
  MPI_WIN_DISP_UNIT = 0x66000005,
  MPI_WIN_SIZE = 0x66000003,
  MPI_WIN_CREATE_FLAVOR = 0x66000007,
  MPI_WIN_MODEL = 0x66000009,
};

// --- Lengths of texts, with the zero at their end, and of what a buffered send needs besides its data

#define MPI_MAX_DATAREP_STRING 128
#define MPI_MAX_ERROR_STRING 512
#define MPI_MAX_INFO_KEY 255
#define MPI_MAX_INFO_VAL 1024
#define MPI_MAX_LIBRARY_VERSION_STRING 8192
#define MPI_MAX_OBJECT_NAME 128
#define MPI_MAX_PORT_NAME 256
#define MPI_MAX_PROCESSOR_NAME 128
#define MPI_MAX_STRINGTAG_LEN 256
#define MPI_MAX_PSET_NAME_LEN 256
#define MPI_BSEND_OVERHEAD 96

// --- Classes of errors

enum {
  MPI_SUCCESS = 0,
  MPI_ERR_BUFFER = 1,
  MPI_ERR_COUNT = 2,
  MPI_ERR_TYPE = 3,
  MPI_ERR_TAG = 4,
  MPI_ERR_COMM = 5,
  MPI_ERR_RANK = 6,
  MPI_ERR_REQUEST = 19,
  MPI_ERR_ROOT = 7,
  MPI_ERR_GROUP = 8,
  MPI_ERR_OP = 9,
  MPI_ERR_TOPOLOGY = 10,
  MPI_ERR_DIMS = 11,
  MPI_ERR_ARG = 12,
  MPI_ERR_UNKNOWN = 13,
  MPI_ERR_TRUNCATE = 14,
  MPI_ERR_OTHER = 15,
  MPI_ERR_INTERN = 16,
  MPI_ERR_PENDING = 18,
  MPI_ERR_IN_STATUS = 17,
  MPI_ERR_ACCESS = 20,
  MPI_ERR_AMODE = 21,
  MPI_ERR_ASSERT = 53,
  MPI_ERR_BAD_FILE = 22,
  MPI_ERR_BASE = 46,
  MPI_ERR_CONVERSION = 23,
  MPI_ERR_DISP = 52,
  MPI_ERR_DUP_DATAREP = 24,
  MPI_ERR_FILE_EXISTS = 25,
  MPI_ERR_FILE_IN_USE = 26,
  MPI_ERR_FILE = 27,
  MPI_ERR_INFO_KEY = 29,
  MPI_ERR_INFO_NOKEY = 31,
  MPI_ERR_INFO_VALUE = 30,
  MPI_ERR_INFO = 28,
  MPI_ERR_IO = 32,
  MPI_ERR_KEYVAL = 48,
  MPI_ERR_LOCKTYPE = 47,
  MPI_ERR_NAME = 33,
  MPI_ERR_NO_MEM = 34,
  MPI_ERR_NOT_SAME = 35,
  MPI_ERR_NO_SPACE = 36,
  MPI_ERR_NO_SUCH_FILE = 37,
  MPI_ERR_PORT = 38,
  MPI_ERR_QUOTA = 39,
  MPI_ERR_READ_ONLY = 40,
  MPI_ERR_RMA_ATTACH = 56,
  MPI_ERR_RMA_CONFLICT = 49,
  MPI_ERR_RMA_RANGE = 55,
  MPI_ERR_RMA_SHARED = 57,
  MPI_ERR_RMA_SYNC = 50,
  MPI_ERR_SERVICE = 41,
  MPI_ERR_SIZE = 51,
  MPI_ERR_SPAWN = 42,
  MPI_ERR_UNSUPPORTED_DATAREP = 43,
  MPI_ERR_UNSUPPORTED_OPERATION = 44,
  MPI_ERR_WIN = 45,
  MPI_ERR_RMA_FLAVOR = 58,
  MPI_ERR_PROC_ABORTED = 76,
  MPI_ERR_VALUE_TOO_LARGE = 77,
  MPI_ERR_SESSION = 75,
  MPI_ERR_ERRHANDLER = 80,
  MPI_ERR_ABI = 81,
  MPI_ERR_LASTCODE = 0x3fffffff,
};

// --- Functions that stand for the standard's own (their types: abi_functions.h, below)

#define MPI_NULL_COPY_FN ((MPI_Copy_function*)0)
#define MPI_DUP_FN ((MPI_Copy_function*)0x1)
#define MPI_NULL_DELETE_FN ((MPI_Delete_function*)0)
#define MPI_COMM_NULL_COPY_FN ((MPI_Comm_copy_attr_function*)0)
#define MPI_COMM_DUP_FN ((MPI_Comm_copy_attr_function*)0x1)
#define MPI_COMM_NULL_DELETE_FN ((MPI_Comm_delete_attr_function*)0)
#define MPI_TYPE_NULL_COPY_FN ((MPI_Type_copy_attr_function*)0)
#define MPI_TYPE_DUP_FN ((MPI_Type_copy_attr_function*)0x1)
#define MPI_TYPE_NULL_DELETE_FN ((MPI_Type_delete_attr_function*)0)
#define MPI_WIN_NULL_COPY_FN ((MPI_Win_copy_attr_function*)0)
#define MPI_WIN_DUP_FN ((MPI_Win_copy_attr_function*)0x1)
#define MPI_WIN_NULL_DELETE_FN ((MPI_Win_delete_attr_function*)0)
#define MPI_CONVERSION_FN_NULL ((MPI_Datarep_conversion_function*)0)
#define MPI_CONVERSION_FN_NULL_C ((MPI_Datarep_conversion_function_c*)0)

// --- The tools interface, which Tutti refuses: what it returns, and the types of its arguments

enum {
  MPI_T_ERR_NOT_INITIALIZED = 60,
  MPI_T_ERR_CANNOT_INIT = 61,
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
  MPI_F_STATUS_SIZE = 5,
  MPI_F_SOURCE = 2,
  MPI_F_TAG = 3,
  MPI_F_ERROR = 4,
};
typedef int MPI_Fint;
struct MPI_F08_status {
  MPI_Fint count_lo;
  MPI_Fint count_hi_and_cancelled;
  MPI_Fint MPI_SOURCE;
  MPI_Fint MPI_TAG;
  MPI_Fint MPI_ERROR;
};

#include "abi_functions.h"

// clang-format on

#endif
