package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SamplePhase is the agent's progress with a sample.
// +kubebuilder:validation:Enum=Running;Finished;Failed
type SamplePhase string

const (
	// SampleRunning means that the window has started.
	SampleRunning SamplePhase = "Running"
	// SampleFinished means that the window is over and mounts contains its counts.
	SampleFinished SamplePhase = "Finished"
	// SampleFailed means that the sample does not exist. The message contains the reason. A new request needs another id.
	SampleFailed SamplePhase = "Failed"
)

// NodeSample requests one sample of the activity of some volumes' mounts. The agent reads counters at the start and at the end of
// the window. It does not access or change any mount.
type NodeSample struct {
	// id identifies the request. An agent responds to it once.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9-]+$`
	ID string `json:"id"`

	// seconds is the length of the window in seconds: 10 to 3600.
	// +required
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=3600
	Seconds int32 `json:"seconds"`

	// volumes are the names of the sampled PersistentVolumes: 1 to 8.
	// +required
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Volumes []string `json:"volumes,omitempty"`

	// startBefore is the latest start of the window, by the node's clock. A later window is not started and the sample fails. If
	// unset, the window may start at any time.
	// +optional
	StartBefore *metav1.Time `json:"startBefore,omitempty"`
}

// NodeSampleStatus is the response to spec.sample. Its total size is at most 64 KiB.
type NodeSampleStatus struct {
	// id is the ID of the request.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	ID string `json:"id"`

	// phase is the agent's progress with the sample: Running, Finished or Failed.
	// +required
	Phase SamplePhase `json:"phase"`

	// message explains why the sample is missing.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`

	// startTime is the start of the window, by the node's clock.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// milliseconds is the actual length of the window in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Milliseconds int64 `json:"milliseconds,omitempty"`

	// mounts contains the samples: one for each file system (superblock), under one of its mount points. Their numbers are the
	// differences between the end and the start of the window, unless their description states otherwise. Mounts that appeared or
	// disappeared during the window are not included. At most 32.
	// +optional
	// +listType=map
	// +listMapKey=mountPoint
	// +kubebuilder:validation:MaxItems=32
	Mounts []MountSample `json:"mounts,omitempty"`

	// mountsOmitted is the number of samples that exceed the size limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MountsOmitted int32 `json:"mountsOmitted,omitempty"`
}

// MountSample contains the changes of one mount's counters over the window. Every number is the difference between end and start,
// unless its description states otherwise.
type MountSample struct {
	// mountPoint is the path of the mount on the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	MountPoint string `json:"mountPoint"`

	// volume is the name of the mount's PersistentVolume.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Volume string `json:"volume"`

	// server is the name or address of the server, as the kernel shows it. Empty for a local file system.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Server string `json:"server,omitempty"`

	// export is the path on the server that is mounted.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Export string `json:"export,omitempty"`

	// protocol is the file system type and version, e.g. NFSv4.1.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Protocol string `json:"protocol,omitempty"`

	// options are the effective mount options. Options longer than 64 characters are not included.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=48
	// +kubebuilder:validation:items:MaxLength=64
	Options []string `json:"options,omitempty"`

	// readAheadKiB is the effective read-ahead window in KiB.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadAheadKiB int32 `json:"readAheadKiB,omitempty"`

	// slotLimit is the maximum number of requests in flight for each connection of NFSv3 and 4.0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SlotLimit int32 `json:"slotLimit,omitempty"`

	// sessionSlots is the node's limit for the slots of a new session of NFSv4.1 and 4.2. Zero if unknown.
	// +optional
	// +kubebuilder:validation:Minimum=0
	SessionSlots int32 `json:"sessionSlots,omitempty"`

	// minRoundTripMicros is the shortest round trip to the server that TCP has ever measured, in microseconds. Zero if unknown.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinRoundTripMicros int64 `json:"minRoundTripMicros,omitempty"`

	// operations are the NFS requests in the window by kind. At most 80.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=80
	Operations []OperationSample `json:"operations,omitempty"`

	// requests is the number of SMB requests. The kernel reports neither their kind nor their duration.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Requests int64 `json:"requests,omitempty"`

	// bytes are the bytes that programs requested, and the resulting bytes over the network. NFS only.
	// +optional
	Bytes ByteSample `json:"bytes,omitzero"`

	// events are the counts of the file system's work for programs. NFS only.
	// +optional
	Events EventSample `json:"events,omitzero"`

	// connections are the transports to the server. All mounts of the same client share them. NFS only.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Connections []ConnectionSample `json:"connections,omitempty"`

	// network contains the TCP counters of the connections to the server. NFS only.
	// +optional
	Network NetworkSample `json:"network,omitzero"`

	// log contains the counters of the log of an XFS file system.
	// +optional
	Log LogSample `json:"log,omitzero"`
}

// OperationSample is one kind of NFS request.
type OperationSample struct {
	// name is the kind of the request, e.g. GETATTR.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	Name string `json:"name"`

	// count is the number of completed requests.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Count int64 `json:"count,omitempty"`

	// transmissions is the number of sent requests, including repetitions.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Transmissions int64 `json:"transmissions,omitempty"`

	// errors is the number of requests that failed.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Errors int64 `json:"errors,omitempty"`

	// bytesSent is the number of bytes sent for all requests of this kind, including headers.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesSent int64 `json:"bytesSent,omitempty"`

	// bytesReceived is the number of bytes received for all requests of this kind, including headers.
	// +optional
	// +kubebuilder:validation:Minimum=0
	BytesReceived int64 `json:"bytesReceived,omitempty"`

	// queueMillis is the total time that requests waited before they were sent, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	QueueMillis int64 `json:"queueMillis,omitempty"`

	// roundTripMillis is the total time between the transmission of requests and their response, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RoundTripMillis int64 `json:"roundTripMillis,omitempty"`

	// executionMillis is the total time between the creation of requests and their completion, in milliseconds. It includes
	// queueMillis and roundTripMillis.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ExecutionMillis int64 `json:"executionMillis,omitempty"`
}

// ByteSample contains the bytes that programs requested, and the resulting bytes over the network.
type ByteSample struct {
	// read is the number of bytes read through the page cache.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Read int64 `json:"read,omitempty"`

	// written is the number of bytes written through the page cache.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Written int64 `json:"written,omitempty"`

	// directRead is the number of bytes read without the page cache (O_DIRECT).
	// +optional
	// +kubebuilder:validation:Minimum=0
	DirectRead int64 `json:"directRead,omitempty"`

	// directWritten is the number of bytes written without the page cache.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DirectWritten int64 `json:"directWritten,omitempty"`

	// wireRead is the number of bytes read over the network.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WireRead int64 `json:"wireRead,omitempty"`

	// wireWritten is the number of bytes written over the network.
	// +optional
	// +kubebuilder:validation:Minimum=0
	WireWritten int64 `json:"wireWritten,omitempty"`
}

// EventSample contains the counts of the file system's work for programs.
type EventSample struct {
	// opens is the number of open calls.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Opens int64 `json:"opens,omitempty"`

	// flushes is the number of close calls after writing.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Flushes int64 `json:"flushes,omitempty"`

	// syncs is the number of fsync calls.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Syncs int64 `json:"syncs,omitempty"`

	// dataInvalidations is the number of times that cached data was dropped because another client had changed the file.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DataInvalidations int64 `json:"dataInvalidations,omitempty"`

	// attributeInvalidations is the number of times that new attributes differed from the cached attributes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AttributeInvalidations int64 `json:"attributeInvalidations,omitempty"`

	// listings is the number of getdents calls.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Listings int64 `json:"listings,omitempty"`
}

// ConnectionSample is one transport to the server.
type ConnectionSample struct {
	// connects is the number of times that the transport was connected.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Connects int64 `json:"connects,omitempty"`

	// sends is the number of sent requests.
	// +required
	// +kubebuilder:validation:Minimum=0
	Sends int64 `json:"sends"`

	// answers is the number of received responses.
	// +required
	// +kubebuilder:validation:Minimum=0
	Answers int64 `json:"answers"`

	// backlog is the sum, over all sends, of the requests that waited for a slot at the time of the send.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Backlog int64 `json:"backlog,omitempty"`

	// sending is the sum, over all sends, of the requests that waited for the transport at the time of the send.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Sending int64 `json:"sending,omitempty"`

	// inFlight is the number of requests sent in the window minus the number of responses.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InFlight int64 `json:"inFlight,omitempty"`

	// idleSeconds is the time between the last completed request and the end of the window, in seconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	IdleSeconds int64 `json:"idleSeconds,omitempty"`
}

// NetworkSample contains TCP counters.
type NetworkSample struct {
	// inSegments is the number of segments received.
	// +optional
	// +kubebuilder:validation:Minimum=0
	InSegments int64 `json:"inSegments,omitempty"`

	// outSegments is the number of segments sent.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OutSegments int64 `json:"outSegments,omitempty"`

	// retransmitted is the number of segments that were sent again.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Retransmitted int64 `json:"retransmitted,omitempty"`

	// outOfOrder is the number of segments that arrived before a missing segment.
	// +optional
	// +kubebuilder:validation:Minimum=0
	OutOfOrder int64 `json:"outOfOrder,omitempty"`
}

// LogSample contains counters of the log of an XFS file system.
type LogSample struct {
	// writes is the number of writes to the log.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Writes int64 `json:"writes,omitempty"`

	// noBuffer is the number of writers that found all log buffers full.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NoBuffer int64 `json:"noBuffer,omitempty"`

	// noSpace is the number of writers that waited for space in the log.
	// +optional
	// +kubebuilder:validation:Minimum=0
	NoSpace int64 `json:"noSpace,omitempty"`
}
